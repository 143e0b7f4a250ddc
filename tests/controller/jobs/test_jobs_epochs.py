"""The epoch counter: never the same epoch twice, whatever happens in between."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p4reduce_contracts.jobs.errors import EpochError
from p4reduce_controller.jobs.epochs import LAST_EPOCH, EpochCounter


def test_epochs_begin_at_1_and_go_on_after_a_restart(tmp_path: Path) -> None:
    counter = EpochCounter(tmp_path / "new" / "folder")
    assert [counter.draw(), counter.draw()] == [1, 2]
    assert EpochCounter(tmp_path / "new" / "folder").draw() == 3


@settings(max_examples=30, deadline=None, derandomize=True)
@given(steps=st.lists(st.sampled_from(["draw", "restart", "killed", "raise"]), max_size=30))
def test_epochs_never_repeat(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    folder = tmp_path_factory.mktemp("state")
    counter = EpochCounter(folder)
    drawn = [0]
    for step in steps:
        if step == "draw":
            drawn.append(counter.draw())
        elif step == "restart":
            counter = EpochCounter(folder)
        elif step == "killed":  # while the next value was being written
            (folder / "epoch.new").write_text("")
        else:
            counter.raise_to(drawn[-1] + 3)
            drawn.append(drawn[-1] + 3)
    assert drawn == sorted(set(drawn))


def test_processes_that_share_a_folder_share_the_epochs(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from p4reduce_controller.jobs.epochs import EpochCounter\n"
        "counter = EpochCounter(Path(sys.argv[1]))\n"
        "print(*(counter.draw() for _ in range(40)))"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    drawn = [int(word) for process in running for word in process.communicate(timeout=60)[0].split()]
    assert sorted(drawn) == list(range(1, 121))


def test_used_up_epochs_say_what_to_do(tmp_path: Path) -> None:
    counter = EpochCounter(tmp_path)
    counter.raise_to(LAST_EPOCH - 1)
    assert counter.draw() == LAST_EPOCH
    with pytest.raises(EpochError, match="restart the switch"):
        counter.draw()


@pytest.mark.parametrize("content", ["", "x", "-1", "65536", "1 2"])
def test_a_damaged_counter_is_never_taken_for_0(tmp_path: Path, content: str) -> None:
    (tmp_path / "epoch").write_text(content)
    with pytest.raises(EpochError, match="does not hold an epoch"):
        EpochCounter(tmp_path).draw()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EpochError, match="set state_dir"):
        EpochCounter(tmp_path / "file" / "below").draw()

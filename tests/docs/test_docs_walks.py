"""The walks of docs/architecture.md are what a run does: it enters their files, in that order."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rigs import system as rigs_system
from rigs.limits import LIMIT_S
from rigs.system import start_controller, start_switch

ROOT = Path(__file__).parents[2]
RIGS = ROOT / "tests" / "rigs"
WALKS = {
    "Path of a gradient": "worker/p4reduce/",
    "Path of a frame": "softswitch/p4reduce_switch/",
    "Path of a job": "",
}
"""Headings, and the folder that the paths below each are in."""


def walk(heading: str) -> list[str]:
    """The files of a walk, from the root."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [WALKS[heading] + path for path in re.findall(r"^\d+\. `([^`]+)`", section, re.MULTILINE)]


def is_interpreted(path: str) -> bool:
    """Whether Python enters it: not where all functions are compiled."""
    return "\n@kernel(" not in (ROOT / path).read_text()


@pytest.fixture(scope="module")
def entered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[int, str]]]:
    """By program: when it entered which file, while a job is made and its one rank trains two steps."""
    folder = tmp_path_factory.mktemp("walks")

    def traced(name: str) -> list[str]:
        return [str(RIGS / "entered_files.py"), str(folder / name)]

    warm = [sys.executable, "-m", "p4reduce_contracts", "warm"]  # under a trace compiling would take minutes
    subprocess.run(warm, check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rigs_system, "COMMAND", [*traced("switch"), "p4reduce"])
        switch = start_switch(folder)
        try:
            patch.setattr(rigs_system, "COMMAND", [*traced("controller"), "p4reduce"])
            controller = start_controller(folder, switch)
            try:
                address = controller.address("jobs on")
                create = ["p4reduce", "job", "create", "walk", "--world-size", "1", "--controller", address]
                subprocess.run(
                    [sys.executable, *traced("command"), *create],
                    check=True,
                    timeout=LIMIT_S,
                    stdout=subprocess.DEVNULL,
                )
                variables = {"P4REDUCE_JOB": "walk", "P4REDUCE_CONTROLLER": address, "RANK": "0", "WORLD_SIZE": "1"}
                train = [sys.executable, *traced("worker"), str(RIGS / "one_rank_training.py")]
                subprocess.run(train, check=True, timeout=LIMIT_S, env={**os.environ, **variables})
            finally:
                controller.end(signal.SIGTERM)
        finally:
            switch.end(signal.SIGTERM)
    return {
        name: [(int(when), path) for when, path in map(str.split, (folder / name).read_text().splitlines())]
        for name in ("switch", "controller", "command", "worker")
    }


@pytest.mark.slow
def test_a_run_enters_the_files_of_a_walk_in_order(entered: dict[str, list[tuple[int, str]]]) -> None:
    for heading in WALKS:
        check(heading, entered)


def check(heading: str, entered: dict[str, list[tuple[int, str]]]) -> None:
    files = walk(heading)
    assert len(files) == len(set(files)) > 5, "each file is named once"
    begin = min(when for when, path in entered["worker"] if path.endswith("pytorch/ddp.py"))
    begin = {"Path of a gradient": begin, "Path of a frame": 0, "Path of a job": entered["command"][0][0]}[heading]
    events = sorted(event for program in entered.values() for event in program if event[0] >= begin)
    at = begin
    for path in filter(is_interpreted, files):
        after = [when for when, file in events if file == path and when >= at]
        assert after, f"{path} is not entered after what the page names before it"
        at = after[0]

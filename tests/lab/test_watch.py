"""`p4reduce demo --watch`: all of it, over a tree of switches."""

from __future__ import annotations

import io
from pathlib import Path

import click.testing
import pytest
from rich.console import Console

from p4reduce_contracts.cli import main
from p4reduce_controller.cli.trace_page import recording_of
from p4reduce_lab import watch
from rigs.running import with_text

pytestmark = [pytest.mark.slow, pytest.mark.processes]


@pytest.mark.fault(
    "a RESULT is lost under `p4reduce demo --watch`: the page shows which, and the round that is repeated"
)
def test_a_sum_over_two_racks_is_recorded_with_the_frame_that_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("P4REDUCE_HOSTS", "on")  # both are set by it, and restored at the end
    monkeypatch.setenv("P4REDUCE_SEGMENTATION", "auto")
    printed = io.StringIO()
    watch.run_watch(tmp_path, Console(file=printed, width=200), racks=2)
    assert f"{tmp_path}/sum.html written" in printed.getvalue()
    document = recording_of((tmp_path / "sum.html").read_text(encoding="utf-8"))
    assert [switch["name"] for switch in document["switches"]] == ["root", "leaf1", "leaf2"]
    assert any(answer["lost"] for step in document["steps"] for answer in step["answers"])
    assert any(step["verdict"] == "DUPLICATE" for step in document["steps"])
    assert not with_text(str(tmp_path)), "a process was left behind"


def test_switches_side_by_side_are_for_the_page() -> None:
    done = click.testing.CliRunner().invoke(main, ["demo", "--switches", "2"])
    assert done.exit_code == 2 and "--switches is for --watch" in done.output

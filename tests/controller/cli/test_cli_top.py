"""`p4reduce top`: rates from two samples, and its text without counts."""

from __future__ import annotations

import io
from dataclasses import replace

from click.testing import CliRunner, Result
from rich.console import Console

from p4reduce_contracts.cli import main
from p4reduce_contracts.jobs.answers import Count, DropStats, JobInfo, JobList, JobStats, MemberInfo, Stats
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_controller.cli.top import Look, screen
from rigs.fake_switch_client import Running
from rigs.tables import rows


def top(running: Running) -> Result:
    return CliRunner().invoke(main, ["top", "--once", "--every", "0.1", "--controller", running.address])


def cells(text: str, beginning: str) -> list[str]:
    """The cells of the only row that begins so."""
    (row,) = rows(text, beginning)
    return row


def a_look(at_s: float, times: int, *, job_id: int = 1, silent_s: float = 0.0) -> Look:
    members = (MemberInfo(0, silent_s),)
    info = JobInfo("train", job_id, 2, 0, 4, "ACTIVE", 3, members, "rank 1 left")
    counts = [Count(times * number, 1_000_000 * times * number) for number in (1, 2, 3, 4)]
    drops = (DropStats("stale", Count(10 * times)), DropStats("bad", Count()))
    return Look(at_s, JobList((info,), 16, 12), Stats((JobStats("train", job_id, *counts),), drops))


def shown(before: Look, now: Look) -> str:
    console = Console(width=200, file=io.StringIO())
    with console.capture() as captured:
        console.print(screen(before, now))
    return captured.get()


def test_rates_are_the_differences_between_two_samples() -> None:
    text = shown(a_look(10.0, 100), a_look(12.0, 120, silent_s=7.4))
    assert cells(text, "train") == [
        "train", "ACTIVE", "1 of 2", "30.0", "10.0", "30.0", "20.0", "40.0", "rank 0 7 s; rank 1 left",
    ]  # fmt: skip
    assert cells(text, "stale") == ["stale", "100.0", "1200"]
    assert "bad" not in text
    assert "12 of 16 slots free" in text


def test_a_new_job_of_the_same_name_has_no_rates_yet() -> None:
    text = shown(a_look(10.0, 100), a_look(12.0, 1, job_id=2))
    assert cells(text, "train")[3:] == [*"-----", "new: rates follow; rank 1 left"]


def test_the_drops_of_a_switch_that_was_away_have_no_rate_yet() -> None:
    before, now = a_look(10.0, 100), a_look(12.0, 120)
    assert now.stats is not None
    drops = (*now.stats.drops, DropStats("epoch", Count(900), "leaf2"))
    text = shown(before, replace(now, stats=replace(now.stats, drops=drops)))
    assert cells(text, "stale") == ["stale", "", "100.0", "1200"]
    assert cells(text, "epoch") == ["epoch", "leaf2", "-", "900"]


def test_a_switch_without_connection_is_shown(running: Running) -> None:
    with JobClient(running.address) as client:
        client.create_job("train", 1)
    running.client.reachable = False
    result = top(running)
    assert result.exit_code == 0, result.output
    assert cells(result.output, "train")[3:] == [*"-----", "its counters could not be read"]
    assert "did not answer" in result.output

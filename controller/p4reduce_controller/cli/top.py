"""`p4reduce top`: the jobs' rates a second, from two samples of the job service's counters."""

from __future__ import annotations

import time
from dataclasses import dataclass

import click
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from p4reduce_contracts.jobs.answers import JobInfo, JobList, JobStats, Stats
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import ControllerUnreachableError, SwitchAwayError
from p4reduce_contracts.jobs.option import controller_option
from p4reduce_runtime.terminal import console, table

_CALL_LIMIT_S = 10.0
_SILENT_S = 5.0
"""A member without a heartbeat for longer is listed; heartbeats are sent every 2 s."""


@dataclass(frozen=True)
class Look:
    """One sample of the job service. `stats` is empty while no switch is connected; `problem` says which are not."""

    at_s: float
    jobs: JobList
    stats: Stats
    problem: str | None = None


@click.command()
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(min=0.1, max=3600),
    default=1.0,
    show_default=True,
    help="Seconds between two samples.",
)
@click.option("--once", is_flag=True, help="Print the table once, after two samples, and exit.")
@controller_option
def top(address: str, every_s: float, once: bool) -> None:
    """Show all jobs, live: rounds and bytes a second, repeats, drops, silent ranks.

    Ctrl-C ends it. To a pipe or a file, the table is printed once.
    """
    shown = console()
    with JobClient(address, timeout_s=_CALL_LIMIT_S) as client:
        before = look(client)
        if once or not shown.is_terminal:
            time.sleep(every_s)
            shown.print(screen(before, look(client)))
            return
        with Live(screen(before, before), console=shown, screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(every_s)
                try:
                    now = look(client)
                except ControllerUnreachableError as error:  # it may be restarted; the last numbers stay
                    live.update(Group(screen(before, before), Text(str(error), "red")), refresh=True)
                    continue
                live.update(screen(before, now), refresh=True)
                before = now


def look(client: JobClient) -> Look:
    """Take a sample. Raises JobServiceError, but not for switches that are not connected."""
    jobs = client.list_jobs()
    try:
        stats = client.stats()
        problem = "\n".join(f"switch {each.switch} is away: {each.problem}" for each in stats.away) or None
    except SwitchAwayError as error:
        stats, problem = Stats((), ()), str(error)
    return Look(time.monotonic(), jobs, stats, problem)


def screen(before: Look, now: Look) -> Group:
    """Make the tables of what happened between two samples."""
    parts: list[Table | Text] = [_jobs_table(before, now)]
    drops = _drops_table(before, now)
    if drops.row_count:
        parts += [drops, Text("why: p4reduce switch trace --job NAME")]
    parts.append(Text(f"{now.jobs.free_slots} of {now.jobs.slots} slots free"))
    if now.problem is not None:
        parts.append(Text(now.problem, "red"))
    return Group(*parts)


def _jobs_table(before: Look, now: Look) -> Table:
    seconds = now.at_s - before.at_s
    earlier = {(job.name, job.switch): job for job in before.stats.jobs}
    rows = []
    for info in now.jobs.with_shards:
        counted: list[JobStats | None] = [job for job in now.stats.jobs if job.name == info.name]
        for job in counted or [None]:
            switch = job.switch if job is not None else ""
            former = earlier.get((info.name, switch))
            remarks = "; ".join(filter(None, (_why_uncounted(former, job), _remarks(info))))
            joined = f"{len(info.members)} of {info.world_size}"
            rows.append((info.name, switch or "-", info.state, joined, *_rates(former, job, seconds), remarks))
    rates = ("#rounds/s", "#frames/s", "#MB/s", "#repeats/s", "#pending/s")
    switch_column = "switch" if len(now.stats.switches) > 1 else None
    return table(("job", switch_column, "state", "#ranks", *rates, "silent ranks, last reset"), rows)


def _why_uncounted(before: JobStats | None, now: JobStats | None) -> str:
    """Return the reason why a job has no rates, "" where it has some."""
    if now is None:
        return "its counters could not be read"
    return "" if before is not None and before.id == now.id else "new: rates follow"


def _rates(before: JobStats | None, now: JobStats | None, seconds: float) -> tuple[str, ...]:
    """Rounds, frames, MB, repeats and pendings a second; "-" where there is only one sample."""
    if before is None or now is None or before.id != now.id or seconds <= 0:
        return ("-",) * 5
    contributions = now.contributions - before.contributions
    duplicates = now.duplicates - before.duplicates
    values = (
        (now.results - before.results).packets,
        contributions.packets,
        (contributions.bytes + duplicates.bytes) / 1e6,
        duplicates.packets,
        (now.pendings - before.pendings).packets,
    )
    return tuple(f"{value / seconds:,.1f}" for value in values)


def _remarks(info: JobInfo) -> str:
    silent = [f"rank {member.rank} {member.silent_s:.0f} s" for member in info.members if member.silent_s > _SILENT_S]
    return "; ".join([*silent, *([info.last_reset] if info.last_reset is not None else [])])


def _drops_table(before: Look, now: Look) -> Table:
    earlier = {(drop.reason, drop.switch): drop.count for drop in before.stats.drops}
    seconds = now.at_s - before.at_s
    rows = []
    for drop in now.stats.drops:
        if drop.count.packets:
            was = earlier.get((drop.reason, drop.switch))  # None: the switch was away
            rate = "-" if was is None or seconds <= 0 else f"{(drop.count - was).packets / seconds:,.1f}"
            rows.append((drop.reason, drop.switch, rate, drop.count.packets))
    switch_column = "at switch" if len(now.stats.switches) > 1 else None
    return table(("dropped because", switch_column, "#frames/s", "#frames"), rows)

"""`p4reduce stats`: the switches' counters."""

from __future__ import annotations

import click

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.option import controller_option
from p4reduce_runtime.terminal import json_option, print_json, print_table


@click.command()
@click.option("--job", "name", help="Only this job. [default: all]")
@click.option("--all-drops", is_flag=True, help="Also list the drop reasons with count 0.")
@json_option
@controller_option
def stats(address: str, name: str | None, all_drops: bool, as_json: bool) -> None:
    """Show the switches' counters.

    Frames and bytes by job, and frames that were dropped by reason; by switch, where the controller has several. Jobs
    of shards stand below their job. "From parent" are RESULT and PENDING that the switch above sent. Switches whose
    counters cannot be read are listed.
    """
    with JobClient(address, timeout_s=10.0) as client:
        counted = client.stats(name)
    if as_json:
        print_json(counted)
        return
    switch, answers = ("switch", "#from parent") if len(counted.switches) > 1 else (None, None)
    print_table(
        ("job", "#id", switch, "#contributions", "#bytes", "#duplicates", "#results", "#pendings", answers, "#hosts"),
        (
            (
                f"{job.part_of}: {job.name}" if job.part_of else job.name,
                job.id,
                job.switch or "-",
                job.contributions.packets,
                job.contributions.bytes,
                job.duplicates.packets,
                job.results.packets,
                job.pendings.packets,
                job.parent_answers.packets,
                job.hosts or "-",
            )
            for job in sorted(counted.jobs, key=lambda job: (job.part_of or job.name, job.part_of))
        ),
        title="Aggregation",
    )
    drops = [drop for drop in counted.drops if all_drops or drop.count.packets]
    if drops:
        print_table(
            ("reason", switch, "#frames", "#bytes"),
            ((drop.reason, drop.switch, drop.count.packets, drop.count.bytes) for drop in drops),
            title="Dropped frames",
        )
    else:
        click.echo("no frames dropped")
    if counted.away:
        away = ((each.switch, each.problem) for each in counted.away)
        print_table(("switch", "its counters are missing, because"), away, title="Switches away")

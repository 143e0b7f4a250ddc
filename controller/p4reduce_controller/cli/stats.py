"""`p4reduce stats`: the switch's counters."""

from __future__ import annotations

import click

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.terminal import controller_option, json_option, print_json, print_table


@click.command()
@click.option("--job", "name", help="Only this job. [default: all]")
@click.option("--all-drops", is_flag=True, help="Also list the drop reasons that never happened.")
@json_option
@controller_option
def stats(address: str, name: str | None, all_drops: bool, as_json: bool) -> None:
    """Show what the switch counted: frames and bytes by job, drops by reason."""
    with JobClient(address, timeout_s=10.0) as client:
        counted = client.stats(name)
    if as_json:
        print_json(counted)
        return
    print_table(
        ("job", "#id", "#contributions", "#bytes", "#duplicates", "#results", "#pendings"),
        (
            (
                one.name,
                one.id,
                one.contributions.packets,
                one.contributions.bytes,
                one.duplicates.packets,
                one.results.packets,
                one.pendings.packets,
            )
            for one in counted.jobs
        ),
        title="Aggregation",
    )
    drops = [one for one in counted.drops if all_drops or one.count.packets]
    if drops:
        print_table(
            ("reason", "#frames", "#bytes"),
            ((one.reason, one.count.packets, one.count.bytes) for one in drops),
            title="Dropped frames",
        )
    else:
        click.echo("no frames dropped")

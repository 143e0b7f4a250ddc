"""`p4reduce job ...`: make, look at and remove jobs."""

from __future__ import annotations

import click

from p4reduce_contracts.jobs.client import JobClient, JobInfo
from p4reduce_contracts.terminal import controller_option, json_option, print_json, print_table


@click.group()
def job() -> None:
    """Make, look at and remove jobs."""


@job.command()
@click.argument("name")
@click.option("--world-size", type=click.IntRange(min=1), required=True, help="How many ranks the job has.")
@click.option(
    "--slots", type=click.IntRange(min=1), help="Slots of the switch it gets. [default: 64, or what is free]"
)
@click.option(
    "--lane-bits",
    type=click.IntRange(min=0),
    default=0,
    help="Bits of the lanes that small integers are summed in. [default: the workers choose the narrowest that fits]",
)
@click.option(
    "--lane-bound",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="The largest |t| that a rank may send in a lane.",
)
@json_option
@controller_option
def create(
    address: str, name: str, world_size: int, slots: int | None, lane_bits: int, lane_bound: int, as_json: bool
) -> None:
    """Make a job; its ranks can then join."""
    with JobClient(address) as client:
        made = client.create_job(name, world_size, slots, lane_bits=lane_bits, lane_bound=lane_bound)
    if as_json:
        print_json(made)
    else:
        click.echo(
            f"job {made.name} (id {made.id}): {made.world_size} ranks, slots {_slots(made)}; "
            f"waiting for its ranks to join"
        )


@job.command("list")
@json_option
@controller_option
def list_jobs(address: str, as_json: bool) -> None:
    """List all jobs."""
    with JobClient(address) as client:
        jobs = client.list_jobs()
    if as_json:
        print_json(jobs)
        return
    print_table(
        ("job", "#id", "state", "#epoch", "#joined", "#ranks", "slots", "last reset"),
        (
            (
                info.name,
                info.id,
                info.state,
                info.epoch or "-",
                len(info.members),
                info.world_size,
                _slots(info),
                info.last_reset or "-",
            )
            for info in jobs.jobs
        ),
    )
    click.echo(f"{jobs.free_slots} of {jobs.slots} slots free")


@job.command()
@click.argument("name")
@json_option
@controller_option
def show(address: str, name: str, as_json: bool) -> None:
    """Show a job and its members."""
    with JobClient(address) as client:
        found = client.get_job(name)
    if as_json:
        print_json(found)
        return
    epoch = f", epoch {found.epoch}" if found.epoch else ""
    click.echo(f"job {found.name} (id {found.id}): {found.state}{epoch}, slots {_slots(found)}")
    width = f"{found.lane_bits} bits" if found.lane_bits else "the narrowest that fits"
    click.echo(f"lanes: {width}, |t| <= {found.lane_bound}")
    if found.run_id:
        click.echo(f"launch: {found.run_id}")
    if found.last_reset:
        click.echo(f"last reset: {found.last_reset}")
    members = {member.rank: member for member in found.members}
    rows: list[tuple[object, ...]] = []
    for rank in range(found.world_size):
        member = members.get(rank)
        if member is None:
            rows.append((rank, "not joined", "-", "-", "-"))
        elif not member.host:
            rows.append((rank, "joined, no HELLO yet", "-", "-", f"{member.silent_s:.1f}"))
        else:
            address = f"{member.host}:{member.port}"
            rows.append((rank, address, member.mac, member.ingress_port, f"{member.silent_s:.1f}"))
    print_table(("#rank", "address", "MAC", "#switch port", "#silent (s)"), rows)


@job.command()
@click.argument("name")
@controller_option
def remove(address: str, name: str) -> None:
    """Remove a job, even while it runs: its members are told at their next heartbeat."""
    with JobClient(address, timeout_s=10.0) as client:
        client.remove_job(name)
    click.echo(f"job {name} removed")


def _slots(info: JobInfo) -> str:
    return f"{info.first_slot}..{info.first_slot + info.slots - 1}"

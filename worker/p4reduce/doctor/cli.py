"""`p4reduce doctor`."""

from __future__ import annotations

import click

from p4reduce_contracts.jobs.option import controller_option
from p4reduce_runtime.environment import P4REDUCE_SWITCH, P4REDUCE_TOKEN
from p4reduce_runtime.terminal import json_option, print_json, print_table


@click.command()
@click.option(
    "--job", help="Take part in this job, which no training uses now. [default: a job of its own, of one rank]"
)
@click.option("--rank", type=click.IntRange(min=0), help="With --job: as this rank. All ranks run a doctor at once.")
@click.option("--world-size", type=click.IntRange(min=1), help="With --job: how many ranks it has.")
@click.option("--token", envvar=P4REDUCE_TOKEN.name, show_envvar=True, help="A token of the job, if it is private.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0.1, max=3600),
    default=10.0,
    show_default=True,
    help="Seconds to wait for the other ranks, and for each collective.",
)
@click.option(
    "--switch",
    envvar=P4REDUCE_SWITCH.name,
    show_envvar=True,
    default="",
    help="The switch that this worker sends to, where the controller has several with different addresses.",
)
@json_option
@controller_option
@click.pass_context
def doctor(
    ctx: click.Context,
    address: str,
    job: str | None,
    rank: int | None,
    world_size: int | None,
    token: str | None,
    timeout_s: float,
    switch: str,
    as_json: bool,
) -> None:
    """Check all that a collective of this worker needs, and say what to change.

    It checks certificates, controller, job, HELLO, socket buffers, round trips, sums in small and in full frames and
    in batches (GSO), and with --job whose link, or whether the job's slots, limit dense sums. The exit status is 0
    only if nothing failed.
    """
    from p4reduce.doctor.checks import RankSpec, Status, run_checks

    spec = None
    if job is not None and rank is not None and world_size is not None:
        if rank >= world_size:
            raise click.UsageError(f"rank {rank} of world size {world_size}: ranks are 0 to {world_size - 1}", ctx)
        spec = RankSpec(job, rank, world_size)
    elif any(given is not None for given in (job, rank, world_size)):
        raise click.UsageError("--job, --rank and --world-size belong together", ctx)
    checks = run_checks(address, spec, token=token, timeout_s=timeout_s, switch=switch)
    healthy = all(check.status is not Status.FAILED for check in checks)
    if as_json:
        print_json({"healthy": healthy, "checks": checks})
    else:
        print_table(
            ("check", "status", "found", "what to change"),
            ((check.name, check.status, check.found, check.advice) for check in checks),
        )
    ctx.exit(0 if healthy else 1)

"""`p4reduce job ...`: create, show and remove jobs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import click

from p4reduce_contracts.jobs.answers import JobInfo, MemberInfo
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.lease import Level
from p4reduce_contracts.jobs.option import controller_option
from p4reduce_contracts.ranks import name_ranks
from p4reduce_contracts.wire.side_by_side import slot_of, slots_together
from p4reduce_runtime.environment import P4REDUCE_TOKEN
from p4reduce_runtime.terminal import json_option, print_json, print_table

_token_option = click.option(
    "--token", envvar=P4REDUCE_TOKEN.name, show_envvar=True, help="A token of the job, if it is private."
)


@click.group()
def job() -> None:
    """Create, show and remove jobs."""


@job.command()
@click.argument("name")
@click.option("--world-size", type=click.IntRange(min=1), required=True, help="How many ranks the job has.")
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    help="Slots of each switch. [default: 128, or what is free; of one switch up to 256]",
)
@click.option("--switches", type=click.IntRange(min=1), help="How many switches side by side. [default: all]")
@click.option(
    "--private", is_flag=True, help="Create tokens, which joining and removing the job then need. [over TLS: always]"
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the owner's token of a private job there, for its user alone, and do not print it.",
)
@json_option
@controller_option
def create(
    address: str,
    name: str,
    world_size: int,
    slots: int | None,
    switches: int | None,
    private: bool,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """Create a job, which its ranks can then join."""
    private = private or token_file is not None
    with JobClient(address) as client, _opened(token_file) as file:
        made = client.create_job(name, world_size, slots, switches=switches, private=private)
        if file is not None:
            file.write(f"{made.owner_token}\n")
            made = replace(made, owner_token="")
    if as_json:
        print_json(made)
    else:
        click.echo(
            f"job {made.name} (id {made.id}): {made.world_size} ranks, slots {_slots(made)}; "
            f"waiting for its ranks to join"
        )
        if made.private:
            where = f"in {token_file}" if token_file else made.owner_token
            click.echo(f"owner's token, to remove it: {where}")
            click.echo(f"members' token, to join it: {made.member_token}")
            click.echo("they are shown only now; give one with --token or in P4REDUCE_TOKEN")


@contextlib.contextmanager
def _opened(path: Path | None) -> Iterator[TextIO | None]:
    """Open a file for a token before the job is created; remove it if no token is written."""
    if path is None:
        yield None
        return
    try:
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w")
    except FileExistsError:
        raise click.ClickException(f"{path} is there already: the token of another job may be in it") from None
    with file:
        try:
            yield file
        except BaseException:
            path.unlink()
            raise


@job.command("list")
@click.option("--ended", is_flag=True, help="List the jobs that were removed instead: the last 1,000 of 30 days.")
@json_option
@controller_option
def list_jobs(address: str, ended: bool, as_json: bool) -> None:
    """List all jobs."""
    with JobClient(address) as client:
        jobs = client.list_jobs(ended=ended)
    if as_json:
        print_json(jobs)
        return
    if ended:
        columns = ("job", "ended", "#ranks", "#hosts", "#collectives", "#bytes up", "#bytes down")
        print_table((*columns, "#retransmissions", "#resets"), map(_ended_row, jobs.jobs))
        return
    columns = ("job", "#id", "state", "#epoch", "#joined", "#ranks", "slots")
    print_table((*columns, "#switches", "#shards", "last reset"), map(_row, jobs.jobs))
    click.echo(f"{jobs.free_slots} of {jobs.slots} slots free")


@job.command()
@click.argument("name")
@_token_option
@click.option("--slots", "with_slots", is_flag=True, help="Also show the slot and the ranks that each rank waits for.")
@json_option
@controller_option
def show(address: str, name: str, token: str | None, with_slots: bool, as_json: bool) -> None:
    """Show a job, its members and what they have counted; also one that was removed, for 30 days.

    The epoch and the members' addresses are shown only with a token of a private job and, of other jobs, on the
    controller's machine.
    """
    with JobClient(address, token=token) as client:
        found = client.get_job(name)
        switches = client.list_switches() if found.is_side_by_side and not as_json else ()
    if as_json:
        print_json(found)
        return
    when = f" at {_time(found.ended)}" if found.ended else ""
    epoch = f", epoch {found.epoch}" if found.epoch else ""
    each = f" at each of {len(found.tree)} switches" if found.is_side_by_side else ""
    most = f", at most {found.switches} switch{'es' if found.switches > 1 else ''}" if found.switches else ""
    click.echo(f"job {found.name} (id {found.id}): {found.state}{when}{epoch}, slots {_slots(found)}{each}{most}")
    if found.missing:
        click.echo(f"waits: {found.missing}")
    if found.run_id:
        click.echo(f"launch: {found.run_id}")
    if found.last_reset:
        click.echo(f"last reset: {found.last_reset}")
    _print_use(found)
    if found.ended:
        return
    if found.is_side_by_side:
        _print_side_by_side(found, {switch.name: f"{switch.host}:{switch.port}" for switch in switches})
    elif len(found.tree) > 1:
        _print_tree(found)
    members = {member.rank: member for member in found.members}
    several = len({address.switch for member in found.members for address in member.addresses}) > 1
    rows: list[tuple[object, ...]] = []
    for rank in range(found.world_size):
        member = members.get(rank)
        if member is None:
            rows.append((rank, "not joined", "-", "-", "-", "-"))
            continue
        silent = f"{member.silent_s:.1f}"
        for at in member.addresses:
            rows.append((rank, f"{at.host}:{at.port}", at.mac, at.switch, at.ingress_port, silent))
        if not member.addresses:
            why = "hidden without a token" if found.hidden else "no HELLO yet"
            rows.append((rank, f"joined, {why}", "-", "-", "-", silent))
    switch_column = "switch" if several else None
    print_table(("#rank", "address", "MAC", switch_column, "#switch port", "#silent (s)"), rows)
    if with_slots and found.hidden:
        click.echo("what the ranks wait for is hidden without a token")
    elif with_slots:
        _print_slots(found)


def _row(info: JobInfo) -> tuple[object, ...]:
    ranks = (len(info.members), info.world_size, _slots(info))
    parts = (len(info.tree) or "-", len(info.shards) or "-", info.last_reset or "-")
    return (info.name, info.id, info.state, info.epoch or "-", *ranks, *parts)


def _ended_row(info: JobInfo) -> tuple[object, ...]:
    used, hosts = info.usage, len(info.ranks_by_host) or "-"
    traffic = (used.collectives, used.bytes_up, used.bytes_down, used.retransmissions)
    return (info.name, _time(info.ended), info.world_size, hosts, *traffic, sum(info.resets.values()))


def _print_use(info: JobInfo) -> None:
    for host, ranks in info.ranks_by_host.items():
        click.echo(f"host {host}: {name_ranks(ranks)}")
    for shard in info.shards:
        click.echo(
            f"shard {shard.name} (id {shard.id}): {shard.state}, {shard.world_size} hosts, slots {_slots(shard)}"
        )
    used, size = info.usage, info.world_size
    if info.part_of:
        click.echo(f"sums a shard of job {info.part_of}, whose ranks count it")
    else:
        click.echo(
            f"{size} rank{'s' if size > 1 else ''} counted: {used.collectives} collectives, {used.bytes_up} B up, "
            f"{used.bytes_down} B down, {used.retransmissions} retransmissions"
        )
    if info.resets:
        causes = ", ".join(f"{cause} {count}" for cause, count in sorted(info.resets.items()))
        click.echo(f"resets: {causes}")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _awaited(info: JobInfo) -> dict[str, set[int]]:
    """Return which children of each switch of a job some rank waits for."""
    awaited: dict[str, set[int]] = {level.switch: set() for level in info.tree}
    for member in info.members:
        if member.slot_wait is not None and (level := _waiting_level(info, member)) is not None:
            awaited[level.switch].update(member.slot_wait.missing_children)
    return awaited


def _print_side_by_side(info: JobInfo, addresses: Mapping[str, str]) -> None:
    awaited, count = _awaited(info), len(info.tree)
    together = slots_together(count, info.slots)
    rows = []
    for number, level in enumerate(info.tree):
        first = [slot_of(number, own, count, together) for own in range(0, info.slots, together)]
        slots = ", ".join([_range(slot, together) for slot in first[:2]] + ["..."] * (len(first) > 2))
        waits = _name(info, level, awaited[level.switch])
        rows.append((level.switch, addresses.get(level.switch, "-"), slots, waits))
    title = f"{info.slots * count} slots in all"
    print_table(("switch", "address", "the job's slots", "waits for, at the last heartbeats"), rows, title=title)


def _print_tree(info: JobInfo) -> None:
    awaited = _awaited(info)
    rows = []
    for level in info.tree:
        every = range(len(level.children))
        rows.append(
            (level.switch, level.parent or "-", _name(info, level, every), _name(info, level, awaited[level.switch]))
        )
    print_table(("switch", "parent", "sums for", "waits for, at the last heartbeats"), rows)


def _waiting_level(info: JobInfo, member: MemberInfo) -> Level | None:
    """Return the switch whose children `slot_wait` names; None if the job has no such switch."""
    wait, levels = member.slot_wait, {level.switch: level for level in info.tree}
    if info.is_side_by_side and wait is not None:
        path = [info.place_of(wait.slot)[0]]
    else:
        path = [levels[each.switch] for each in member.addresses if each.switch in levels]
    while path and path[-1].parent in levels:
        path.append(levels[path[-1].parent])
    number = wait.level if wait is not None else 0
    return path[number] if number < len(path) else None


def _name(info: JobInfo, level: Level, bits: Iterable[int]) -> str:
    """Name children of a switch: the switches among them, and ranks."""
    below = {each.ranks: each.switch for each in info.tree if each.parent == level.switch}
    children = [level.children[bit] for bit in sorted(bits) if bit < len(level.children)]
    names = [f"{below[ranks]} ({name_ranks(ranks)})" for ranks in children if ranks in below]
    alone = sorted(ranks[0] for ranks in children if ranks not in below)
    return ", ".join([*names, *([name_ranks(alone)] if alone else [])]) or "-"


def _missing(info: JobInfo, member: MemberInfo) -> str:
    """Return what a rank waits for, "" if it does not know."""
    assert member.slot_wait is not None
    bits = member.slot_wait.missing_children
    level = _waiting_level(info, member)
    if len(info.tree) < 2 or level is None or not bits:
        return ", ".join(map(str, bits))
    return f"{level.switch} waits for {_name(info, level, bits)}"


def _print_slots(info: JobInfo) -> None:
    rows: list[tuple[object, ...]] = []
    for member in info.members:
        wait = member.slot_wait
        if wait is None:
            rows.append((member.rank, "-", "-", "-", "-", "in no collective"))
            continue
        missing = _missing(info, member) or "not known: no PENDING yet"
        slot: object = wait.slot
        if info.is_side_by_side:
            level, number = info.place_of(wait.slot)
            slot = f"{wait.slot} ({number} of {level.switch})"
        rows.append((member.rank, wait.in_flight, slot, wait.round, f"{wait.waited_s:.1f}", missing))
    columns = ("#rank", "#slots in flight", "#oldest slot", "#its round", "#waited (s)", "missing ranks")
    print_table(columns, rows, title="Waiting, at the last heartbeat")


@job.command()
@click.argument("name")
@_token_option
@controller_option
def remove(address: str, name: str, token: str | None) -> None:
    """Remove a job, even while it runs: its members receive the reset at once."""
    with JobClient(address, timeout_s=10.0, token=token) as client:
        client.remove_job(name)
    click.echo(f"job {name} removed")


def _slots(info: JobInfo) -> str:
    return _range(info.first_slot, info.slots)


def _range(first: int, count: int) -> str:
    return f"{first}..{first + count - 1}"

"""`p4reduce switch trace --job NAME`: what a switch did with a job's frames, in the terms of p4reduce's protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import click

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.wire.numbers import BASE, DROP_REASONS, JOB_BYTE, KEY_NONE, KEYS_WORD, SLOT_BYTES, TYPE_NAMES
from p4reduce_runtime.environment import P4REDUCE_CONTROLLER
from p4reduce_runtime.underlay import AGGREGATION_PORT

_UDP_PORT, _FRAME = 36, 42
"""Offsets of the UDP destination port and of the frame, behind Ethernet and IPv4 without options."""
_BITS: Final = {"seen": "children seen", "held": "columns held"}

View = tuple[list[tuple[int, bytes]], Callable[[Mapping[str, Any]], Iterator[str]]]


def view(job: str, slot: int | None) -> View:
    """Return the bytes by which a job's frames are chosen, and what makes lines of a trace. Raises JobServiceError."""
    with JobClient(P4REDUCE_CONTROLLER.read()) as client:
        jobs = client.list_jobs()
    known = {info.name: info for info in jobs.with_shards}
    if shards := [shard.name for info in jobs.jobs if info.name == job for shard in info.shards]:
        click.echo(f"large tensors of {job} are summed by jobs of their own: {', '.join(shards)}", err=True)
    if job not in known:
        raise click.ClickException(f"there is no job {job}; the jobs are: {', '.join(known) or 'none'}")
    if known[job].is_side_by_side:
        names = [level.switch for level in known[job].tree]
        click.echo(
            f"{job} has slots at {', '.join(names)} in turn; --slot and the trace count those of one switch "
            "(`p4reduce job show --slots` has both numbers)",
            err=True,
        )
    where = [(_UDP_PORT, AGGREGATION_PORT.to_bytes(2, "big")), (_FRAME + JOB_BYTE, bytes((known[job].id,)))]
    if slot is not None:
        where.append((_FRAME + SLOT_BYTES.start, slot.to_bytes(2, "big")))
    return where, lines


def lines(trace: Mapping[str, Any]) -> Iterator[str]:
    """Yield a frame's fields, what the switch held for its slot, and what it answered, or why nothing."""
    tag: int | None = None
    frame = b""
    for event in trace["events"]:
        step, name, values = event["step"], event.get("name", ""), event.get("values", {})
        if step == "received":
            frame = bytes.fromhex(event["frame"])[_FRAME:]
            states = [other.get("name", "") for other in trace["events"] if other["step"] == "state"]
            columns = sum(state.startswith("column_") for state in states)
            yield f"{trace['number']}  port {trace['port']}: {_fields(frame, columns)}"
        elif step == "table" and name.endswith(".admit"):
            yield "    admitted" if values["hit"] else "    not admitted: no rank of this job sends from there"
        elif step == "read" and name.endswith(".slot_state.tags"):
            tag = values["value"]
            yield f"    slot: round {tag & 0xFFFFFFFF} of epoch {tag >> 32}" if tag else "    slot: not used yet"
        elif step in ("read", "written") and ".slot_state." in name and (word := _BITS.get(name.rpartition(".")[2])):
            yield f"    {word}: {values['value']:#b}{' now' if step == 'written' else ''}"
        elif step in ("read", "written") and name.endswith(".keys"):
            yield f"    {name.split('.')[-2]}: key {_key(values['value'])}{' now' if step == 'written' else ''}"
        elif step == "counted" and name.endswith(".drops"):
            yield f"    dropped: {_reason(values['index'], frame, tag)}"
        elif step == "sent":
            yield f"    to port {values['port']}: {_fields(bytes.fromhex(event['frame'])[_FRAME:], 0)}"
    if all(event["step"] != "sent" and "drops" not in event.get("name", "") for event in trace["events"]):
        yield "    no answer: taken in, and other children are waited for"


def _fields(frame: bytes, columns: int) -> str:
    if len(frame) < BASE.size:
        return f"{len(frame)} bytes, no frame"
    kind, job, present, level, epoch, slot, number, seen = BASE.unpack_from(frame)
    keys = [frame[at : at + 4] for at in range(4 * KEYS_WORD, min(4 * (KEYS_WORD + columns), len(frame)), 4)]
    shown = f", next blocks {' '.join(_key(int.from_bytes(key, 'big')) for key in keys)}" if keys else ""
    return (
        f"{TYPE_NAMES.get(kind & 15, kind & 15)} of job {job}, epoch {epoch}, slot {slot}, round {number}, "
        f"columns {present:#b}, seen {seen:#b}, level {level}{shown}"
    )


def _key(key: int) -> str:
    return "none" if key == KEY_NONE else f"{key >> 8}"


def _reason(index: int, frame: bytes, tag: int | None) -> str:
    reason = DROP_REASONS.get(index, str(index))
    if reason != "STALE" or tag is None:
        return reason
    number, held = BASE.unpack_from(frame)[6], tag & 0xFFFFFFFF
    return f"STALE: the slot holds round {held}, so it takes round {held} or {held + 2}, and the frame is of {number}"

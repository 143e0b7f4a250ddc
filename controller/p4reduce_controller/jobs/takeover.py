"""Compares a switch's entries with the desired ones: jobs whose entries are complete continue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from p4reduce_controller.p4runtime.entries import MulticastGroup, TableEntry

Held = TableEntry | MulticastGroup


@dataclass(frozen=True)
class Takeover:
    """Which jobs the switch holds whole, by id, what must go from it, and what of the rest is missing."""

    kept: frozenset[int]
    delete: tuple[Held, ...]
    insert: tuple[Held, ...]


def compare(found: Iterable[Held], jobs: Mapping[int, Iterable[Held]], own: Iterable[Held]) -> Takeover:
    """Compare the entries and groups found on a switch with those of each of `jobs`, by id, and the switch's `own`.

    A job is kept if every entry of it is there as it should be. What belongs to no kept job and is not `own` has to go.
    """
    there = {_name(entry): entry for entry in found}
    desired: dict[str, Held] = {}
    kept = set()
    for job_id, entries in jobs.items():
        of_job = {_name(entry): entry for entry in entries}
        if all(_is_equal(there.get(name), entry) for name, entry in of_job.items()):
            kept.add(job_id)
            desired |= of_job
    missing = {_name(entry): entry for entry in own}
    for name, entry in missing.items():
        if _is_equal(there.get(name), entry):
            desired[name] = entry
    return Takeover(
        frozenset(kept),
        tuple(entry for name, entry in there.items() if name not in desired),
        tuple(entry for name, entry in missing.items() if name not in desired),
    )


def _name(entry: Held) -> str:
    """What makes two entries the same one to a switch."""
    if isinstance(entry, MulticastGroup):
        return f"group {entry.group_id}"
    return f"{entry.table} {sorted(entry.match.items())} {entry.priority}"


def _is_equal(found: Held | None, desired: Held) -> bool:
    if isinstance(found, MulticastGroup) and isinstance(desired, MulticastGroup):
        return sorted(found.replicas) == sorted(desired.replicas)
    if isinstance(found, TableEntry) and isinstance(desired, TableEntry):
        return (found.action, found.params) == (desired.action, desired.params)
    return False

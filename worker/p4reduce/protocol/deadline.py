"""Why a collective does not go on, and what to say when it missed its deadline."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from p4reduce.errors import CollectiveTimeout
from p4reduce.protocol.call import Call
from p4reduce.stats import CollectiveStats
from p4reduce_contracts.jobs.lease import Lease

Refused = tuple[int, int, int]
"""Foreign, malformed and stale frames."""


class Obstacle(NamedTuple):
    """Why a collective does not go on, as far as the answers of the switch say."""

    text: str
    missing_ranks: tuple[int, ...] = ()
    """The ranks that the switch waits for."""


def obstacle(lease: Lease, seen: Iterable[int], stats: CollectiveStats, heard: Refused) -> Obstacle:
    """Return why a collective does not go on.

    `seen`: the ranks that had contributed, of each open slot that had a PENDING. `heard`: the refused frames when the
    last answer came that was not refused.
    """
    missing = 0
    for ranks_in in seen:
        missing |= lease.full & ~ranks_in
    ranks = tuple(rank for rank in range(lease.world_size) if missing >> rank & 1)
    if ranks:
        plural = "s" if len(ranks) > 1 else ""
        return Obstacle(f"the switch still waits for rank{plural} {', '.join(map(str, ranks))}", ranks)
    where = f"{lease.switch_host}:{lease.switch_port}"
    refused = [count - before for count, before in zip(refused_frames(stats), heard, strict=True)]
    if any(refused):
        foreign, malformed, stale = refused
        return Obstacle(
            f"frames came from {where}, and none was of use: {foreign} of another job or epoch, {malformed} malformed "
            f"or not what was agreed, {stale} of a round that is over"
        )
    if stats.rounds or stats.pendings:
        return Obstacle(
            f"answers from the switch at {where} stopped; look for a lost link, an overloaded switch, or frames "
            "that it drops (`p4reduce stats`)"
        )
    return Obstacle(f"the switch at {where} answered nothing; see that it runs and that the job is active")


def too_late(call: Call, timeout_s: float, why: Obstacle) -> CollectiveTimeout:
    """Return the error of a collective that was not done after `timeout_s`."""
    return CollectiveTimeout(f"{call} did not finish in {timeout_s:g} s: {why.text}", why.missing_ranks)


def refused_frames(stats: CollectiveStats) -> Refused:
    """Return how many frames came and were of no use."""
    return stats.foreign, stats.malformed, stats.stale

"""What to say when a collective missed its deadline."""

from __future__ import annotations

from collections.abc import Iterable

from p4reduce.errors import CollectiveTimeout
from p4reduce.protocol.call import Call
from p4reduce.stats import CollectiveStats
from p4reduce_contracts.jobs.lease import Lease


def too_late(
    call: Call, lease: Lease, seen: Iterable[int], timeout_s: float, stats: CollectiveStats, heard: Refused
) -> CollectiveTimeout:
    """Return the error that names the ranks the switch was still waiting for, as far as its PENDINGs told.

    `seen`: who had contributed, of each open slot whose PENDING told. `heard`: the refused frames when the last answer
    came that was not refused.
    """
    missing = 0
    for ranks_in in seen:
        missing |= lease.full & ~ranks_in
    ranks = [rank for rank in range(lease.world_size) if missing >> rank & 1]
    text = f"{call} did not finish in {timeout_s:g} s: "
    where = f"{lease.switch_host}:{lease.switch_port}"
    refused = [count - before for count, before in zip(refused_frames(stats), heard, strict=True)]
    if ranks:
        plural = "s" if len(ranks) > 1 else ""
        text += f"the switch still waits for rank{plural} {', '.join(map(str, ranks))}"
    elif any(refused):
        foreign, malformed, stale = refused
        text += (
            f"frames came from {where}, and none was of use: {foreign} of another job or epoch, {malformed} malformed "
            f"or not what was agreed, {stale} of a round that is over"
        )
    elif stats.rounds or stats.pendings:
        text += (
            f"answers from the switch at {where} stopped; look for a lost link, an overloaded switch, or frames "
            "that it drops (`p4reduce stats`)"
        )
    else:
        text += f"the switch at {where} answered nothing; see that it runs and that the job is active"
    return CollectiveTimeout(text, ranks)


Refused = tuple[int, int, int]
"""Foreign, malformed and stale frames."""


def refused_frames(stats: CollectiveStats) -> Refused:
    """Return how many frames came and were of no use."""
    return stats.foreign, stats.malformed, stats.stale

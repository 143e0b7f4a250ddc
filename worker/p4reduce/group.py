"""The ranks that exchange gradients, as codecs and compressors see them: no switch, no epoch, no addresses."""

from __future__ import annotations

from dataclasses import dataclass

from p4reduce_contracts.jobs.lease import Lease


@dataclass(frozen=True)
class Group:
    """One rank among the ranks of a job, and the shape of the frames that carry their words."""

    name: str
    rank: int
    world_size: int
    block_words: int
    """32-bit words in a block: what is sent and left out as one."""
    columns: int
    """Blocks in a full frame."""
    slot_count: int
    """Frames that can be under way at once."""


def group_of(lease: Lease) -> Group:
    """Return the group of a lease."""
    return Group(
        name=lease.name,
        rank=lease.rank,
        world_size=lease.world_size,
        block_words=lease.block_words,
        columns=lease.columns,
        slot_count=lease.slot_count,
    )

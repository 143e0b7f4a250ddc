"""Which ranks share a host, and which of them send. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

MOST_RANKS = 64
"""Ranks of a host: the bits that say which of its ranks hold a block (protocol/state.py, Engine.holders)."""
_UNIT: Final = 1000
"""Elements at whose multiples a parameter is cut: the bins of most compressors end there too."""


@dataclass(frozen=True)
class HostPlan:
    """The hosts of a job, and its shards: shard p of a tensor is sent by the p-th rank of each host.

    With several hosts there are as many shards as ranks on the host that has fewest; a host's ranks beyond them only
    add their data in its memory. One host alone needs no switch: each of its ranks sums a shard.
    """

    hosts: tuple[tuple[int, ...], ...]
    """The ranks of each host, ascending; hosts by their lowest rank."""

    @property
    def shards(self) -> int:
        """Number of shards: the smallest number of ranks on a host."""
        return min(map(len, self.hosts))

    @property
    def uses_switch(self) -> bool:
        """Whether there is more than one host."""
        return len(self.hosts) > 1

    def host_of(self, rank: int) -> int:
        """Return the number of a rank's host."""
        return next(number for number, ranks in enumerate(self.hosts) if rank in ranks)

    def shard_of(self, rank: int) -> int | None:
        """Return the shard that a rank sends, or sums in memory; None if it only adds its data."""
        place = self.hosts[self.host_of(rank)].index(rank)
        return place if place < self.shards else None


def make_plan(keys: Sequence[str]) -> HostPlan | None:
    """Return the plan of ranks whose hosts have these keys, by rank; None if several, no two on one host."""
    hosts: dict[str, list[int]] = {}
    for rank, key in enumerate(keys):
        hosts.setdefault(key, []).append(rank)
    plan = HostPlan(tuple(map(tuple, hosts.values())))
    return plan if len(plan.hosts) < max(2, len(keys)) else None


def group_of(rank: int, keys: Sequence[str]) -> tuple[int, ...]:
    """Return the ranks that are to share memory with a rank: those with its key, MOST_RANKS of them at most."""
    alike = [other for other, key in enumerate(keys) if key == keys[rank]]
    begin = alike.index(rank) // MOST_RANKS * MOST_RANKS
    return tuple(alike[begin : begin + MOST_RANKS])


def span_of(shard: int, shards: int, blocks: int) -> tuple[int, int]:
    """Return the first block of a shard, and the end."""
    return blocks * shard // shards, blocks * (shard + 1) // shards


def elements_of(shard: int, shards: int, elements: int) -> tuple[int, int]:
    """Return the first element of a parameter that belongs to a shard, and the end; perhaps no element does."""
    first, last = span_of(shard, shards, -(-elements // _UNIT))
    return first * _UNIT, min(last * _UNIT, elements)

"""Communicators in one process over a tree of compiled programs, in the place of a LocalGroup's one switch."""

from __future__ import annotations

from typing import Any

from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts import artifacts
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire import DEFAULT, SMALL, Geometry
from rigs.pipeline import ARTIFACTS, EPOCH, JOB, SLOT_BASE, payload_of
from rigs.secret import rank_secret
from rigs.tree import Shape, TreeRig

_NAMES = {DEFAULT: "default", SMALL: "small"}


class TreeSwitch:
    """A tree whose links lose nothing, as one switch."""

    def __init__(self, tree: TreeRig) -> None:
        self.tree = tree

    def process(self, rank: int, payload: bytes) -> list[tuple[int, bytes]]:
        """Return the payloads that arrive at ranks because of one from a rank."""
        return [(to, payload_of(frame)) for to, frame in self.tree.send(rank, payload)]


def two_racks(ranks: int) -> Shape:
    """Return the shape of a root over two racks, as far as there are ranks for both."""
    half = -(-ranks // 2)
    return [list(range(half)), list(range(half, ranks))] if ranks > 1 else [[0]]


class TreeGroup(LocalGroup):
    """`LocalGroup` with the same arguments, whose ranks are in two racks."""

    def __init__(self, world_size: int, *, geometry: Geometry = DEFAULT, slots: int = 64, **options: Any) -> None:
        slots = min(slots, artifacts.geometry(ARTIFACTS / _NAMES[geometry]).slots - SLOT_BASE)
        tree = TreeRig(_NAMES[geometry], two_racks(world_size), slot_count=slots)
        leases = [
            Lease(
                *(JOB, "test", EPOCH, rank, world_size, slots, geometry.columns, geometry.block_words),
                secret=rank_secret(rank),
                levels=tree.levels(rank),
            )
            for rank in range(world_size)
        ]
        super().__init__(world_size, switch=TreeSwitch(tree), leases=leases, **options)

"""Communicators in one process over a tree of compiled programs, in the place of a LocalGroup's one switch."""

from __future__ import annotations

from typing import Any

from p4reduce.testing.local_group import EPOCH as RESETTABLE_EPOCH
from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts import artifacts
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from p4reduce_contracts.wire.geometry import DEFAULT, SMALL, Geometry
from rigs.cut_runs import CutGroup
from rigs.pipeline import ARTIFACTS, EPOCH, JOB, SLOT_BASE, payload_of
from rigs.secret import rank_secret
from rigs.tree import Shape, TreeRig

_NAMES = {DEFAULT: "default", SMALL: "small"}


class TreeSwitch:
    """A tree whose links lose nothing, as one switch."""

    def __init__(self, tree: TreeRig) -> None:
        self.tree = tree

    def process(self, rank: int, payload: bytes) -> list[tuple[int, bytes]]:
        return [(to, payload_of(frame)) for to, frame in self.tree.send(rank, payload)]


def two_racks(ranks: int) -> Shape:
    """Return the shape of a root over two racks, as far as there are ranks for both."""
    half = -(-ranks // 2)
    return [list(range(half)), list(range(half, ranks))] if ranks > 1 else [[0]]


def tree_job(world_size: int, geometry: Geometry, slots: int, epoch: int) -> dict[str, Any]:
    """Return the arguments of a LocalGroup whose ranks are in two racks: its switch, and its leases."""
    slots = min(slots, artifacts.geometry(ARTIFACTS / _NAMES[geometry]).slots - SLOT_BASE)
    tree = TreeRig(_NAMES[geometry], two_racks(world_size), slot_count=slots, epoch=epoch)
    leases = [
        Lease(
            *(JOB, "test", epoch, rank, world_size, slots, geometry.columns, geometry.block_words),
            switches=(LeasedSwitch(secret=rank_secret(rank), levels=tree.levels(rank)),),
        )
        for rank in range(world_size)
    ]
    return {"switch": TreeSwitch(tree), "leases": leases}


class TreeGroup(LocalGroup):
    """`LocalGroup` with the same arguments, whose ranks are in two racks."""

    def __init__(self, world_size: int, *, geometry: Geometry = DEFAULT, slots: int = 64, **options: Any) -> None:
        super().__init__(world_size, **tree_job(world_size, geometry, slots, EPOCH), **options)


class CutTree(CutGroup):
    """`CutGroup` with the same arguments, whose ranks are in two racks."""

    def __init__(self, world_size: int, cuts: set[int], **options: Any) -> None:
        super().__init__(world_size, cuts, **tree_job(world_size, SMALL, 4, RESETTABLE_EPOCH), **options)

    def _restart(self, epoch: int) -> None:
        assert isinstance(self.switch, TreeSwitch)
        self.switch.tree.renew(epoch)

    def switches_of_rank(self, rank: int) -> tuple[LeasedSwitch, ...]:
        assert isinstance(self.switch, TreeSwitch)
        return (LeasedSwitch(secret=rank_secret(rank), levels=self.switch.tree.levels(rank)),)

"""What the ranks of the model call: sums whose digits say who is in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.snapshots import RestorableCollective
from p4reduce.codecs import Int32
from p4reduce.errors import Reason
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.call import Call
from p4reduce.protocol.initial_state import Records
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from p4reduce_contracts.wire.calls import CodecId, Kind
from p4reduce_contracts.wire.geometry import SMALL
from rigs.tree import Shape, TreeRig

TIMEOUT_S = 1e6
"""No deadline is met: a collective that cannot end is a state without a way out, which the search finds."""

RecordsOf = Callable[[int, int], Records]
"""A function that returns records for a number of blocks, and of slots that are opened at first."""


@dataclass(frozen=True)
class Sum:
    """An all-reduce of int32, in which each rank holds these blocks of `blocks`."""

    blocks: int
    held: tuple[tuple[int, ...], ...]
    """The blocks that each rank holds, by rank."""
    slots: int
    """Slots that are opened at first."""
    digit: int = 1
    """A factor: rank r adds 16^r times this, and the sum shows how often each rank is in it."""

    def tensor(self, rank: int) -> NDArray[np.int32]:
        values = np.zeros((self.blocks, SMALL.block_words), np.int32)
        for block in self.held[rank]:
            values[block] = self.digit * 16**rank + np.arange(SMALL.block_words) * 16**6
        return values.reshape(-1)

    def expected(self, world_size: int) -> NDArray[np.int32]:
        total: NDArray[np.int32] = np.sum([self.tensor(rank) for rank in range(world_size)], axis=0, dtype=np.int32)
        return total

    def begin(self, lease: Lease, number: int, records_of: RecordsOf) -> RestorableCollective:
        tensor = self.tensor(lease.rank)
        source = Int32(tensor).bind(lease.world_size, lease.block_words, False)
        call = Call(number, Kind.ALL_REDUCE, CodecId.INT32, 0, tensor.size)
        return RestorableCollective(records_of(source.n_blocks, self.slots), source, call, TIMEOUT_S)


@dataclass(frozen=True)
class Refusal:
    rank: int
    asked: Sum
    """The call of the other ranks."""

    def begin(self, lease: Lease, number: int, records_of: RecordsOf) -> RestorableCollective:
        if lease.rank != self.rank:
            return self.asked.begin(lease, number, records_of)
        call = Call(number, Kind.REFUSED, detail=Reason.NOT_FINITE)
        return RestorableCollective(records_of(0, self.asked.slots), Blocks(), call, TIMEOUT_S)


@dataclass(frozen=True)
class Generation:
    """The leases of one epoch, and what is called in it."""

    leases: tuple[Lease, ...]
    calls: tuple[Sum | Refusal, ...]


def generation(
    ranks: int,
    slots: int,
    epoch: int,
    calls: Sequence[Sum | Refusal],
    secret: int = 1,
    shape: Shape | None = None,
    switches: Sequence[int] = (0,),
) -> Generation:
    """Leases of `slots` slots for all ranks; `secret` makes their secrets different from another generation's.

    `shape`: the tree of switches; None: one switch, or those side by side that have these numbers as `port`.
    """
    tree = None if shape is None else TreeRig("small", shape)
    leases = tuple(
        Lease(
            7,
            "model",
            epoch,
            rank,
            ranks,
            slots,
            SMALL.columns,
            SMALL.block_words,
            switches=tuple(
                LeasedSwitch(
                    port=number,
                    secret=secret << 32 | number << 8 | rank + 1,
                    levels=() if tree is None else tree.levels(rank),
                )
                for number in switches
            ),
        )
        for rank in range(ranks)
    )
    return Generation(leases, tuple(calls))

"""How many slots a collective uses: agreed by all ranks, without a round trip of its own.

The window fixes which slot a block belongs to, so the ranks must use the same one. Each rank puts
the window it would like next into its call descriptor, all ranks see all descriptors, and the
smallest proposal is everybody's window for the next collective.

A collective of few blocks opens fewer slots. How many blocks a call like this one needed last time is the same on all
ranks, since all of them saw the same RESULTs. Where it needs more this time, its slots split (protocol/receive.py).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from p4reduce.protocol.state import ROUNDS_A_SLOT
from p4reduce_contracts.wire.numbers import MAX_SLOTS


class Window:
    """Doubles until something is lost, then grows slowly; halves when more than one round in five is lost."""

    INITIAL: Final = 64
    MINIMUM: Final = 8
    ENOUGH: Final = 128
    """Slots at a switch above which the window does not grow while frames wait in queues: only the queues would."""
    TOLERATED_LOSS: Final = 0.2
    OVERRUN_LOSS: Final = 0.02
    """Share of rounds with a loss after a doubling of the window above which a buffer on the path is too small."""
    MOST_CALLS: Final = 1024
    """Number of calls whose numbers of blocks are remembered."""

    def __init__(self, slot_count: int, turn: int = 1, shards: int = 1) -> None:
        """`turn`: slots after which the next is at the first switch again. `shards`: windows over this host's link."""
        self._turn = turn
        self._limit, self._floor = slot_count, min(self.MINIMUM, slot_count)
        self._agreed = min(max(self.INITIAL // shards, self.MINIMUM, turn), slot_count)
        """What the ranks agreed on."""
        self.slots = self._even(self._agreed)
        """The window of the next collective."""
        self.proposal = self._agreed
        """The window that this rank proposes, in the next collective, for the one after it."""
        self._lossless = True
        self._blocks: dict[Hashable, int | None] = {}
        """Call, the least recent first -> number of blocks that at least one rank held; None: more than half of all."""

    def slots_of(self, call: Hashable, columns: int, *, few: bool = False) -> int:
        """Return the slots that the next collective opens at first; the arguments are the same on all ranks.

        `call`: what calls alike have in common. One that needed few blocks last time opens few. `few`: whether the
        first such call opens one, and not the window.
        """
        blocks = self._blocks.get(call, 1 if few else None)
        if blocks is None:
            return self.slots
        count = max(1, -(-blocks // (columns * ROUNDS_A_SLOT)))
        return min(self.slots, count if count < self._turn else -(-count // self._turn) * self._turn)

    def saw(self, call: Hashable, union_blocks: int, blocks: int) -> None:
        """Remember of a collective that is done how many of its blocks at least one rank held."""
        self._blocks.pop(call, None)
        self._blocks[call] = union_blocks if 2 * union_blocks <= blocks else None
        if len(self._blocks) > self.MOST_CALLS:
            del self._blocks[next(iter(self._blocks))]

    def finished(self, agreed: int, rounds: int, losses: int, *, limited: bool = False, most: int = MAX_SLOTS) -> None:
        """Take over what the ranks agreed on, and judge the collective that just ended by its rounds and those lost.

        `limited`: it used fewer slots than the window, so it is no evidence for a wider one. `most`: slots up to which
        the window grows.
        """
        used, slots = self._agreed, self.slots
        self._agreed, self.slots = agreed, self._even(agreed)
        tolerated = self.OVERRUN_LOSS if self._lossless else self.TOLERATED_LOSS
        self._lossless = self._lossless and not losses
        if losses > tolerated * rounds:
            new = used // 2
        elif not limited and not losses and rounds >= 4 * slots:
            new = min(2 * used if self._lossless else used + max(self._turn, used // 8), max(used, most))
        else:
            new = agreed
        self.proposal = min(self._limit, max(self._floor, new))

    def _even(self, slots: int) -> int:
        """Return the slots of the whole turns in these; these where they are fewer than one."""
        return slots // self._turn * self._turn or slots

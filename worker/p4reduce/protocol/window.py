"""How many slots a collective uses: agreed by all ranks, without a round trip of its own.

The window fixes which slot a block belongs to, so the ranks must use the same one. Each rank puts
the window it would like next into its call descriptor, all ranks see all descriptors, and the
smallest proposal is everybody's window for the next collective.
"""

from __future__ import annotations

from typing import Final

from p4reduce.stats import CollectiveStats

ROUNDS_A_SLOT: Final = 4
"""What a slot should carry: its opening frame then is a small part, and a few round trips suffice."""


def slots_for(blocks: int, columns: int) -> int:
    """How many slots a collective of about `blocks` blocks should open."""
    return max(1, -(-blocks // (columns * ROUNDS_A_SLOT)))


class Window:
    """Doubles until something is lost, then grows slowly; halves when more than one round in five is lost."""

    INITIAL: Final = 64
    MINIMUM: Final = 8
    TOLERATED_LOSS: Final = 0.2
    OVERRUN_LOSS: Final = 0.02
    """Of the collective after the window has doubled: more, and a buffer on the way is too small for it."""

    def __init__(self, slot_count: int, fixed: int | None = None) -> None:
        self._limit = slot_count if fixed is None else min(fixed, slot_count)
        self._floor = min(self.MINIMUM, self._limit) if fixed is None else self._limit
        self.slots = self._limit if fixed is not None else min(self.INITIAL, slot_count)
        """The window of the next collective."""
        self.proposal = self.slots
        """What this rank proposes, in the next collective, for the one after it."""
        self._lossless = True

    def finished(self, agreed: int, stats: CollectiveStats, *, limited: bool = False) -> None:
        """Take over what the ranks agreed on, and judge the collective that just ended.

        `limited`: it used fewer slots than the window, so it says nothing for a wider one.
        """
        used, self.slots = self.slots, agreed
        tolerated = self.OVERRUN_LOSS if self._lossless else self.TOLERATED_LOSS
        self._lossless = self._lossless and not stats.losses
        if stats.losses > tolerated * stats.rounds:
            wanted = used // 2
        elif not limited and not stats.losses and stats.rounds >= 4 * used:
            wanted = 2 * used if self._lossless else used + max(1, used // 8)
        else:
            wanted = agreed
        self.proposal = min(self._limit, max(self._floor, wanted))

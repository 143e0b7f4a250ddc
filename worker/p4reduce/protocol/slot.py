"""The state of one slot of a running collective."""

from __future__ import annotations

from typing import Final

from p4reduce_contracts.wire import MAX_BLOCKS

COLUMN_DONE: Final = MAX_BLOCKS + 1
"""As a column's floor: no further block may come."""


class SlotState:
    """What a worker remembers about the round a slot is in."""

    __slots__ = (
        "blocks",
        "corrupt",
        "corrupt_answers",
        "corrupt_try",
        "done",
        "expected",
        "exponents",
        "floors",
        "frame",
        "index",
        "keys",
        "moved",
        "opening",
        "order",
        "round",
        "seen",
        "sent_at",
        "tries",
    )

    def __init__(self, index: int, round_: int, columns: int, expected: int) -> None:
        self.index = index
        self.round = round_
        self.expected = expected
        """The columns the RESULT of this round has to carry, as a bitmap."""
        self.keys: tuple[int, ...] = ()
        """The look-ahead keys this rank sent in this round."""
        self.floors = [-1] * columns
        """Per column, the last block the ranks agreed on."""
        self.blocks: list[int] = []
        """The blocks being summed in this round, in column order; empty in the opening round."""
        self.exponents = b""
        self.frame = b""
        self.opening = True
        self.done = False
        self.order = 0
        """The place of this round's frame in the order of sending, counted over all slots."""
        self.moved = False
        """Whether the frame was sent again after others, and has its place behind them now."""
        self.sent_at = 0.0
        self.tries = 0
        """How often this round's frame was sent again."""
        self.corrupt = b""
        """The last RESULT of this round that cannot be right."""
        self.corrupt_answers = 0
        """How many sends of this round's frame were answered with exactly those bytes."""
        self.corrupt_try = 0
        """`tries` when they last came."""
        self.seen: int | None = None
        """Who had contributed, as the last PENDING of this round said."""

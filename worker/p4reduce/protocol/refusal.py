"""A rank that cannot take part in a collective refuses it in the opening round of that same collective.

Its call descriptor is of the kind REFUSED, with the collective's own operation number and a reason, and it opens slot 0
alone, with no blocks. So every rank reads it in the RESULT of slot 0's opening round. No other slot can have gone
beyond its opening round, for that takes a contribution of the rank that refused, and no rank goes beyond it before it
has slot 0's RESULT. Then every rank opens all slots of the window that it has not opened, with the key for "none": so
these rounds end too, no slot is left half full, and all ranks are in step for the next collective.
"""

from __future__ import annotations

from collections.abc import Sequence

from p4reduce.errors import InvalidTensorError, LaneOverflowError, NotFiniteError, Reason, UnderflowError

_REASONS: tuple[tuple[type[BaseException], Reason], ...] = (
    (NotFiniteError, Reason.NOT_FINITE),
    (UnderflowError, Reason.UNDERFLOW),
    (LaneOverflowError, Reason.LANE_OVERFLOW),
    (InvalidTensorError, Reason.INVALID_TENSOR),
)


def reason_of(error: BaseException) -> Reason:
    """Return the reason that the other ranks get for an error."""
    return next((reason for error_type, reason in _REASONS if isinstance(error, error_type)), Reason.OTHER)


def code_of(reason: Reason) -> int:
    """Return the number that stands for a reason on the wire."""
    return reason.bit_length() - 1


def known_reasons(bits: int) -> Reason:
    """Return the reasons in bits from the wire; OTHER where none is of this version."""
    return Reason(bits & sum(Reason)) or Reason.OTHER


def reason_in(words: Sequence[int]) -> Reason:
    """Return the reason in a descriptor of the kind REFUSED."""
    return known_reasons(1 << (words[1] >> 16 & 0xFF))

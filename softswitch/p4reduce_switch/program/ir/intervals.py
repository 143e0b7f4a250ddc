"""Interval analysis: the bits of each value, and where truncation has no effect. Every expression is a `Data`.

BMv2 computes with integers of unlimited precision, and truncates a value when it is stored in a field.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from p4reduce_switch.program.errors import UnsupportedConstructError

WIDEST_SHIFT = 1 << 14
"""Shifting left by more than this gives 0."""
WIDEST = 1 << 17
"""Bits of the widest value that is analysed; wider ones are unknown."""
WIDEST_COMPUTED = 1 << 15
"""Bits of the widest value that is computed exactly."""


class Op(Enum):
    """An operation on two integers. DIVIDE and MODULO require a dividend of at least 0 and a divisor above 0."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    AND = "&"
    OR = "|"
    XOR = "^"
    SHIFT_LEFT = "<<"
    SHIFT_RIGHT = ">>"
    DIVIDE = "/"
    MODULO = "%"


class Interval(Struct, frozen=True):
    """[low, high]; None: unknown."""

    low: int | None = None
    high: int | None = None

    @classmethod
    def unsigned(cls, width: int) -> Interval:
        """Return the interval of an unsigned integer of `width` bits."""
        return cls(0, (1 << width) - 1)

    @classmethod
    def signed_of(cls, width: int) -> Interval:
        """Return the interval of a signed integer of `width` bits."""
        return cls(-(1 << (width - 1)), (1 << (width - 1)) - 1)

    @classmethod
    def of(cls, width: int, signed: bool) -> Interval:
        """Return the interval of a field."""
        return cls.signed_of(width) if signed else cls.unsigned(width)

    @property
    def constant(self) -> int | None:
        """The value, if the interval has only one."""
        return self.low if self.low is not None and self.low == self.high else None

    @property
    def signed(self) -> bool:
        """Whether the value may be negative."""
        return self.low is None or self.low < 0

    @property
    def bits(self) -> int | None:
        """Bits that represent every value (two's complement if it may be negative); None: unknown."""
        if self.low is None or self.high is None:
            return None
        if self.low >= 0:
            return self.high.bit_length()
        return max((~self.low).bit_length(), self.high.bit_length()) + 1

    def within(self, low: int, high: int) -> bool:
        """Return whether every value is in [low, high]."""
        return self.low is not None and self.high is not None and low <= self.low and self.high <= high

    def or_else(self, other: Interval) -> Interval:
        """Return the smallest interval that contains both."""
        if self.low is None or self.high is None or other.low is None or other.high is None:
            return UNKNOWN
        return Interval(min(self.low, other.low), max(self.high, other.high))

    def complement(self) -> Interval:
        """Return the interval of ~x."""
        return Interval(None if self.high is None else ~self.high, None if self.low is None else ~self.low)


UNKNOWN = Interval()
BIT = Interval(0, 1)


def fold(op: Op, a: int, b: int) -> int | None:
    """Return `a op b`; None if it is undefined, or wider than WIDEST."""
    if op in (Op.SHIFT_LEFT, Op.SHIFT_RIGHT) and b < 0:
        return None
    match op:
        case Op.ADD:
            return a + b
        case Op.SUBTRACT:
            return a - b
        case Op.MULTIPLY:
            return a * b if a.bit_length() + b.bit_length() <= WIDEST else None
        case Op.AND:
            return a & b
        case Op.OR:
            return a | b
        case Op.XOR:
            return a ^ b
        case Op.SHIFT_LEFT:
            return a << b if b <= WIDEST_SHIFT and a.bit_length() + b <= WIDEST else None
        case Op.SHIFT_RIGHT:
            return a >> b
    return None


def combined(op: Op, a: Interval, b: Interval) -> Interval:
    """Return the interval of `a op b`."""
    found = _combined(op, a, b)
    return found if (found.bits or 0) <= WIDEST else UNKNOWN


def _combined(op: Op, a: Interval, b: Interval) -> Interval:
    if op is Op.AND and (highs := [v.high for v in (a, b) if not v.signed and v.high is not None]):
        return Interval(0, min(highs))
    if op is Op.DIVIDE:
        return Interval(0, a.high)
    if op is Op.MODULO:
        return Interval(0, a.high if b.high is None else max(0, b.high - 1))
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return UNKNOWN
    natural = a.low >= 0 and b.low >= 0
    match op:
        case Op.ADD:
            return Interval(a.low + b.low, a.high + b.high)
        case Op.SUBTRACT:
            return Interval(a.low - b.high, a.high - b.low)
        case Op.MULTIPLY:
            corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
            return Interval(min(corners), max(corners))
        case Op.OR | Op.XOR if natural:
            return Interval.unsigned(max(a.high.bit_length(), b.high.bit_length()))
        case Op.SHIFT_RIGHT if natural:
            return Interval(0, a.high >> b.low)
        case Op.SHIFT_LEFT if natural and b.high <= WIDEST_SHIFT:
            return Interval(a.low << b.low, a.high << b.high)
    # What follows from the operands' bits in two's complement.
    bits = _signed_bits(a)
    if op is Op.SHIFT_LEFT:
        bits += max(0, min(b.high, WIDEST_SHIFT))
    elif op is not Op.SHIFT_RIGHT:
        bits = max(bits, _signed_bits(b))
    return Interval.signed_of(bits)


def _signed_bits(interval: Interval) -> int:
    assert interval.bits is not None
    return interval.bits + (not interval.signed)


class Node(Struct, frozen=True, eq=False):
    """A node of the IR. Nodes are compared by identity: a program has one for each header, union and stack."""


class Data(Node, frozen=True):
    """An integer expression."""

    interval: Interval

    @property
    def bits(self) -> int:
        """Bits that represent every value. UnsupportedConstructError for more than can be computed."""
        bits = self.interval.bits
        if bits is None or bits > WIDEST_COMPUTED:
            raise UnsupportedConstructError(f"a value of more than {WIDEST_COMPUTED} bits")
        return bits

    @property
    def signed(self) -> bool:
        """Whether the value may be negative; then `bits` are of two's complement."""
        return self.interval.signed

    @property
    def signed_bits(self) -> int:
        """Bits in two's complement."""
        return self.bits + (not self.signed)

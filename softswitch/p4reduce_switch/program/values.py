"""Python expressions with the interval their value lies in: it tells where a mask is not needed.

BMv2 computes with unlimited integers and cuts a value to size when it is stored in a field. The
compiler does the same, and leaves out every mask that the interval proves to be useless.
"""

from __future__ import annotations

from dataclasses import dataclass

WIDEST_SHIFT = 1 << 14  # shifting left by more than this leaves nothing in any field


@dataclass(frozen=True)
class Value:
    """Python source of an integer; `low` and `high` bound it (None: not known)."""

    code: str
    low: int | None = None
    high: int | None = None

    @property
    def constant(self) -> int | None:
        """The value when it is known at compile time."""
        return self.low if self.low is not None and self.low == self.high else None

    def within(self, low: int, high: int) -> bool:
        """True when the value is certain to lie in [low, high]."""
        return self.low is not None and self.high is not None and low <= self.low and self.high <= high


def constant(number: int) -> Value:
    """A literal."""
    return Value(hex(number) if number > 9 else f"({number})" if number < 0 else str(number), number, number)


def unsigned(code: str, width: int) -> Value:
    """A value that is known to fit `width` bits."""
    return Value(code, 0, (1 << width) - 1)


def wrap(value: Value, width: int, signed: bool) -> Value:
    """`value` cut to a field: modulo 2^width, two's complement for signed fields."""
    mask = (1 << width) - 1
    if not signed:
        if value.within(0, mask):
            return value
        if value.constant is not None:
            return constant(value.constant & mask)
        return Value(f"({value.code} & {mask:#x})", 0, mask)
    half = 1 << (width - 1)
    if value.within(-half, half - 1):
        return value
    if value.constant is not None:
        return constant((value.constant + half & mask) - half)
    return Value(f"(({value.code} + {half:#x} & {mask:#x}) - {half:#x})", -half, half - 1)


def saturate(value: Value, width: int, signed: bool) -> Value:
    """`value` clamped to what `width` bits can hold."""
    low = -(1 << (width - 1)) if signed else 0
    high = (1 << (width - 1)) - 1 if signed else (1 << width) - 1
    if value.within(low, high):
        return value
    if value.low is not None and value.low >= low:
        return Value(f"(t if (t := {value.code}) <= {high:#x} else {high:#x})", low, high)
    return Value(f"({low} if (t := {value.code}) < {low} else t if t <= {high:#x} else {high:#x})", low, high)


def either(code: str, yes: Value, no: Value) -> Value:
    """An expression that has one of two values."""
    if yes.low is None or yes.high is None or no.low is None or no.high is None:
        return Value(code)
    return Value(code, min(yes.low, no.low), max(yes.high, no.high))


def _fold(op: str, a: int, b: int) -> int | None:
    if (op == "<<" and not 0 <= b <= WIDEST_SHIFT) or (op == ">>" and b < 0):
        return None
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "&":
            return a & b
        case "|":
            return a | b
        case "^":
            return a ^ b
        case "<<":
            return a << b
        case ">>":
            return a >> b
    return None


def _bounds(op: str, a: Value, b: Value) -> tuple[int | None, int | None]:
    if op == "&":
        highs = [v.high for v in (a, b) if v.low is not None and v.low >= 0 and v.high is not None]
        return (0, min(highs)) if highs else (None, None)
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return None, None
    if op == "+":
        return a.low + b.low, a.high + b.high
    if op == "-":
        return a.low - b.high, a.high - b.low
    if op == "*":
        corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return min(corners), max(corners)
    if op in "|^" and a.low >= 0 and b.low >= 0:
        return 0, (1 << max(a.high.bit_length(), b.high.bit_length())) - 1
    if op == ">>" and a.low >= 0:
        return 0, a.high >> b.low
    if op == "<<" and a.low >= 0 and b.high <= WIDEST_SHIFT:
        return a.low << b.low, a.high << b.high
    return None, None


def binary(op: str, a: Value, b: Value) -> Value:
    """`a op b` for + - * & | ^ << >>, on unlimited integers."""
    if a.constant is not None and b.constant is not None:
        folded = _fold(op, a.constant, b.constant)
        if folded is not None:
            return constant(folded)
    if op == "&":
        for value, mask in ((a, b.constant), (b, a.constant)):
            if mask is not None and value.high is not None and value.within(0, value.high):
                reach = (1 << value.high.bit_length()) - 1
                if mask & reach == reach:
                    return value
    if b.constant == 0 and op in ("+", "-", "|", "^", "<<", ">>"):
        return a
    low, high = _bounds(op, a, b)
    if op == "<<" and not b.within(0, WIDEST_SHIFT):
        return Value(f"({a.code} << s if (s := {b.code}) <= {WIDEST_SHIFT} else 0)")
    return Value(f"({a.code} {op} {b.code})", low, high)

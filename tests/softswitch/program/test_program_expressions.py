"""Expressions against a model in plain Python, for random operands."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p4reduce_switch.program import Program
from p4reduce_switch.program.ir.build import binary, constant, cut, saturate
from p4reduce_switch.program.ir.expressions import Argument, Data
from p4reduce_switch.program.ir.intervals import UNKNOWN, Interval, Op
from p4reduce_switch.program.python.checks import nonzero
from p4reduce_switch.program.python.expressions import Expressions, Names
from p4reduce_switch.program.python.source import Source

EDGES = (0, 1, 2, 7, 127, 128, 129, 254, 255)


def signed(value: int, bits: int = 8) -> int:
    return value - (1 << bits) if value >> (bits - 1) else value


def clamp(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def model(frame: bytes) -> bytes:
    """What arithmetic.p4 appends for its 11 bytes of operands."""
    a, b, c, d, e, f, gh = struct.unpack(">BBBBIHB", frame)
    c, d = signed(c), signed(d)
    flag = (a == 7) == (b == 7)
    comparisons = (a < b) | (a <= b) << 1 | (c < d) << 2 | (c >= 0 or d == -1) << 3 | (a == b) << 4
    comparisons |= (a == 7) << 5 | flag << 6
    small = [
        a + b, a - b, a * b, clamp(a + b, 0, 255), clamp(a - b, 0, 255),
        c + d, clamp(c + d, -128, 127), clamp(c - d, -128, 127), -c,
        a << 3, a >> 3, c >> 2, ~a, a & b, a | b, a ^ b,
    ]  # fmt: skip
    return (
        bytes(value & 0xFF for value in small)
        + bytes([b, a, e >> 12 & 0xFF])
        + struct.pack(">I", e & 0xFFFF00FF | a << 8)
        + bytes([max(a, b), comparisons])
        + struct.pack(">HHB", c & 0xFFFF, a, f & 0xFF)
        + bytes([a & 7, a >> 2])
        + struct.pack(">I", e << b & 0xFFFFFFFF)
        + bytes([(gh & 15) << 4 | gh >> 4, c * d & 0xFF])
    )


def test_all_operators(load: Callable[[str], Program]) -> None:
    program, source = load("arithmetic"), random.Random(7)
    for _ in range(2000):
        frame = bytes(source.choice((*EDGES, source.randrange(256))) for _ in range(11))
        assert program.process(1, frame) == [(1, frame + model(frame))], frame.hex()


def test_words_are_added_without_carries(load: Callable[[str], Program]) -> None:
    program, source = load("wide"), random.Random(8)
    sums = [[0] * 32 for _ in range(4)]
    for _ in range(200):
        index = source.randrange(4)
        words = [source.choice((0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, source.getrandbits(32))) for _ in range(32)]
        sums[index] = [(x + y) & 0xFFFFFFFF for x, y in zip(sums[index], words, strict=True)]
        frame = struct.pack(">H32I", index, *words)
        assert program.process(1, frame) == [(1, struct.pack(">H32I", index, *sums[index]))]


def argument(index: int, width: int) -> Data:
    """A parameter of an action."""
    return Argument(Interval.unsigned(width), index)


def evaluate(node: Data, *arguments: int) -> int:
    """What the generated Python makes of an expression over `a0`, `a1`, …"""
    source = Source()
    source.names["nonzero"] = nonzero
    names = {f"a{index}": value for index, value in enumerate(arguments)}
    with source.block(f"def value(f, {', '.join(names)}):"):
        source.add(f"return {Expressions(source, Names(), len(arguments)).data(node)}")
    namespace, _ = source.execute()
    result: int = namespace["value"]([], **names)
    return result


def test_huge_shift_takes_no_memory() -> None:
    value = binary(Op.SHIFT_LEFT, argument(0, 8), argument(1, 32))
    assert evaluate(value, 255, 0xFFFFFFFF) == 0
    assert evaluate(value, 255, 8) == 255 << 8


def test_shifts_inside_shifts() -> None:
    inner = cut(binary(Op.SHIFT_LEFT, argument(0, 8), argument(1, 32)), 64, False)
    assert evaluate(binary(Op.SHIFT_LEFT, inner, argument(2, 32)), 3, 4, 5) == 3 << 4 << 5


@given(st.integers(-5, 300), st.sampled_from([Op.SHIFT_LEFT, Op.SHIFT_RIGHT]))
def test_a_shift_by_a_negative_number_gives_0(by: int, op: Op) -> None:
    value = binary(op, argument(0, 8), Argument(Interval.signed_of(16), 1))
    assert evaluate(value, 200, by) == (0 if by < 0 else 200 << by if op is Op.SHIFT_LEFT else 200 >> by)


@given(st.sampled_from([*Op]), st.integers(1, 40), st.integers(1, 40), st.data())
def test_bounds_hold(op: Op, width_a: int, width_b: int, data: st.DataObject) -> None:
    a, b = data.draw(st.integers(0, (1 << width_a) - 1)), data.draw(st.integers(0, (1 << width_b) - 1))
    divides, shifts = op in (Op.DIVIDE, Op.MODULO), op in (Op.SHIFT_LEFT, Op.SHIFT_RIGHT)
    if divides:
        b = b or 1
    if shifts:
        width_b, b = min(width_b, 8), b & 0xFF
    result = binary(op, argument(0, width_a), argument(1, width_b))
    number = evaluate(result, a, b)
    assert number == eval(f"a {'//' if op is Op.DIVIDE else op.value} b", {"a": a, "b": b})
    assert result.interval.low is not None and result.interval.high is not None and result.width is not None
    assert result.interval.low <= number <= result.interval.high
    assert number.bit_length() + (number < 0) <= result.width or number == -(1 << (result.width - 1))
    assert result.signed or number >= 0


@given(st.integers(-1000, 1000), st.integers(2, 9), st.booleans())
def test_cut_and_saturate(number: int, width: int, is_signed: bool) -> None:
    low = -(1 << (width - 1)) if is_signed else 0
    high = low + (1 << width) - 1
    anything = Argument(UNKNOWN, 0)
    wrapped = evaluate(cut(anything, width, is_signed), number)
    assert low <= wrapped <= high and (wrapped - number) % (1 << width) == 0
    assert evaluate(saturate(anything, width, is_signed), number) == clamp(number, low, high)
    assert cut(constant(number), width, is_signed).interval.constant == wrapped


@pytest.mark.parametrize(("value", "width"), [(argument(0, 8), 8), (argument(0, 3), 8), (constant(255), 8)])
def test_no_mask_where_none_is_needed(value: Data, width: int) -> None:
    assert cut(value, width, False) is value
    assert binary(Op.AND, value, constant((1 << width) - 1)).interval == value.interval
    assert binary(Op.AND, argument(0, 3), constant(7)).interval == Interval.unsigned(3)

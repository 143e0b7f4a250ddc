"""Expressions against a model in plain Python, for random operands."""

from __future__ import annotations

import operator
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
from rigs import random_expressions
from rigs.expression_values import PLAIN, clamped, wrapped

EDGES = (0, 1, 2, 7, 127, 128, 129, 254, 255)


def model(frame: bytes) -> bytes:
    """What arithmetic.p4 appends for its 11 bytes of operands."""
    a, b, c, d, e, f, gh = struct.unpack(">BBBBIHB", frame)
    c, d = wrapped(c, 8, True), wrapped(d, 8, True)
    flag = (a == 7) == (b == 7)
    comparisons = (a < b) | (a <= b) << 1 | (c < d) << 2 | (c >= 0 or d == -1) << 3 | (a == b) << 4
    comparisons |= (a == 7) << 5 | flag << 6
    small = [
        a + b, a - b, a * b, clamped(a + b, 8, False), clamped(a - b, 8, False),
        c + d, clamped(c + d, 8, True), clamped(c - d, 8, True), -c,
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


OPERATORS = {op: PLAIN[op.value] for op in Op if op.value in PLAIN} | {
    Op.DIVIDE: operator.floordiv,
    Op.MODULO: operator.mod,
    Op.SHIFT_LEFT: operator.lshift,
    Op.SHIFT_RIGHT: operator.rshift,
}


@given(st.sampled_from([*Op]), st.integers(1, 40), st.integers(1, 40), st.data())
def test_the_interval_of_a_result_contains_it(op: Op, width_a: int, width_b: int, data: st.DataObject) -> None:
    a, b = data.draw(st.integers(0, (1 << width_a) - 1)), data.draw(st.integers(0, (1 << width_b) - 1))
    if op in (Op.DIVIDE, Op.MODULO):
        b = b or 1
    if op in (Op.SHIFT_LEFT, Op.SHIFT_RIGHT):
        width_b, b = min(width_b, 8), b & 0xFF
    result = binary(op, argument(0, width_a), argument(1, width_b))
    number = OPERATORS[op](a, b)
    assert result.interval.low is not None and result.interval.high is not None and result.width is not None
    assert result.interval.low <= number <= result.interval.high
    assert number.bit_length() + (number < 0) <= result.width or number == -(1 << (result.width - 1))
    assert result.signed or number >= 0


@given(st.integers(-1000, 1000), st.integers(2, 9), st.booleans())
def test_cut_and_saturate_of_a_constant(number: int, width: int, is_signed: bool) -> None:
    assert cut(constant(number), width, is_signed).interval.constant == wrapped(number, width, is_signed)
    interval = saturate(Argument(UNKNOWN, 0), width, is_signed).interval
    assert (interval.low, interval.high) == (clamped(-5000, width, is_signed), clamped(5000, width, is_signed))


@pytest.mark.parametrize("width", random_expressions.WIDTHS)
@pytest.mark.slow
def test_random_expressions(width: int) -> None:
    assert [random_expressions.differences(seed, width, 20) for seed in (0, 1)] == [0, 0]


@pytest.mark.parametrize(("value", "width"), [(argument(0, 8), 8), (argument(0, 3), 8), (constant(255), 8)])
def test_no_mask_is_emitted_where_the_interval_fits(value: Data, width: int) -> None:
    assert cut(value, width, False) is value
    assert binary(Op.AND, value, constant((1 << width) - 1)).interval == value.interval
    assert binary(Op.AND, argument(0, 3), constant(7)).interval == Interval.unsigned(3)

"""Expressions against a model in plain Python, for random operands."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p4reduce_switch.program import Program
from p4reduce_switch.program.values import Value, binary, constant, saturate, unsigned, wrap

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
        words = [
            source.choice((0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, source.getrandbits(32)))
            for _ in range(32)
        ]
        sums[index] = [(x + y) & 0xFFFFFFFF for x, y in zip(sums[index], words, strict=True)]
        frame = struct.pack(">H32I", index, *words)
        assert program.process(1, frame) == [(1, struct.pack(">H32I", index, *sums[index]))]


def test_huge_shift_takes_no_memory(load: Callable[[str], Program]) -> None:
    value = binary("<<", unsigned("x", 8), unsigned("y", 32))
    assert eval(value.code, {"x": 255, "y": 0xFFFFFFFF}) == 0
    assert eval(value.code, {"x": 255, "y": 8}) == 255 << 8


@given(st.sampled_from("+-*&|^"), st.integers(1, 40), st.integers(1, 40), st.data())
def test_bounds_hold(op: str, width_a: int, width_b: int, data: st.DataObject) -> None:
    a, b = data.draw(st.integers(0, (1 << width_a) - 1)), data.draw(st.integers(0, (1 << width_b) - 1))
    result = binary(op, unsigned("a", width_a), unsigned("b", width_b))
    number = eval(result.code, {"a": a, "b": b})
    assert number == eval(f"a {op} b", {"a": a, "b": b})
    assert result.low is not None and result.high is not None
    assert result.low <= number <= result.high


@given(st.integers(-1000, 1000), st.integers(2, 9), st.booleans())
def test_wrap_and_saturate(number: int, width: int, is_signed: bool) -> None:
    low = -(1 << (width - 1)) if is_signed else 0
    high = low + (1 << width) - 1
    wrapped = eval(wrap(Value("x"), width, is_signed).code, {"x": number})
    assert low <= wrapped <= high and (wrapped - number) % (1 << width) == 0
    assert eval(saturate(Value("x"), width, is_signed).code, {"x": number}) == clamp(number, low, high)
    assert wrap(constant(number), width, is_signed).constant == wrapped


@pytest.mark.parametrize(
    ("value", "width"), [(unsigned("x", 8), 8), (unsigned("x", 3), 8), (constant(255), 8)]
)
def test_no_mask_where_none_is_needed(value: Value, width: int) -> None:
    assert wrap(value, width, False) == value
    assert binary("&", value, constant((1 << width) - 1)) == value

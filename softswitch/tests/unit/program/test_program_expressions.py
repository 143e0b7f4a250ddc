"""Expressions: the intervals of results, and random programs against a model in plain Python."""

from __future__ import annotations

import operator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p4reduce_switch.program import Program
from p4reduce_switch.program.ir.build import binary, constant, cut, saturate
from p4reduce_switch.program.ir.expressions import Argument, Data
from p4reduce_switch.program.ir.intervals import UNKNOWN, Interval, Op
from p4reduce_switch.program.llvm.lanes import Lanes
from rigs import random_expressions
from rigs.random_expressions import PLAIN, apply, clamped, field, hexstr, repeated, wrapped


def argument(index: int, width: int) -> Data:
    """A parameter of an action."""
    return Argument(Interval.unsigned(width), index)


OPERATORS = {op: PLAIN[op.value] for op in Op if op.value in PLAIN} | {
    Op.DIVIDE: operator.floordiv,
    Op.MODULO: operator.mod,
    Op.SHIFT_LEFT: operator.lshift,
    Op.SHIFT_RIGHT: operator.rshift,
}


@given(st.sampled_from([*Op]), st.integers(1, 40), st.integers(1, 40), st.booleans(), st.booleans(), st.data())
def test_the_interval_of_a_result_contains_it(
    op: Op, width_a: int, width_b: int, signed_a: bool, signed_b: bool, data: st.DataObject
) -> None:
    if op in (Op.DIVIDE, Op.MODULO):
        signed_a = signed_b = False
    if op in (Op.SHIFT_LEFT, Op.SHIFT_RIGHT):
        width_b = min(width_b, 8)
    kinds = Interval.of(width_a, signed_a), Interval.of(width_b, signed_b)
    a, b = (data.draw(st.integers(kind.low, kind.high)) for kind in kinds)
    if op in (Op.DIVIDE, Op.MODULO):
        b = b or 1
    result = binary(op, Argument(kinds[0], 0), Argument(kinds[1], 1))
    number = 0 if op in (Op.SHIFT_LEFT, Op.SHIFT_RIGHT) and b < 0 else OPERATORS[op](a, b)
    assert result.interval.low is not None and result.interval.high is not None
    assert result.interval.low <= number <= result.interval.high
    assert number.bit_length() + (number < 0) <= result.bits or number == -(1 << (result.bits - 1))
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


@pytest.mark.parametrize(
    ("a", "b", "apart"),
    [(0x7FFFFFFF, 0x7FFFFFFF, True), (0x7FFFFFFF, 0x80000000, True), (0x7FFFFFFF, 0x80000001, False)],
)
@pytest.mark.parametrize("width", [160, 256, 1024])
def test_sums_of_words_are_vectors_where_no_carry_leaves_a_word(
    a: int, b: int, apart: bool, width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts of the fields that the masks keep are at their greatest, and random."""
    monkeypatch.setenv("P4REDUCE_CACHE_DIR", str(tmp_path))
    stored: list[bool] = []
    store = Lanes.store
    monkeypatch.setattr(Lanes, "store", lambda *of: stored.append(store(*of)) or stored[-1])
    x, y = field("h", "a"), field("h", "b")
    sides = (apply("&", of, hexstr(repeated(mask, width))) for of, mask in ((x, a), (y, b)))
    total = apply("&", apply("^", apply("+", *sides), y), hexstr((1 << width) - 1))
    config, _ = random_expressions.program(0, width)
    config["header_types"][2]["fields"] = [["a", width, False], ["b", width, False]]
    config["actions"][0]["primitives"][:-1] = [random_expressions.assign(["h", "a"], total)]
    program, model = Program(config), random_expressions.Model(config)
    assert stored == [apart]
    for frame in (b"\xff" * (width // 4), *random_expressions.frames(0, width // 4, 20)):
        assert program.process(1, frame) == [(1, model.process(frame))]


@pytest.mark.parametrize(("value", "width"), [(argument(0, 8), 8), (argument(0, 3), 8), (constant(255), 8)])
def test_no_mask_is_emitted_where_the_interval_fits(value: Data, width: int) -> None:
    assert cut(value, width, False) is value
    assert binary(Op.AND, value, constant((1 << width) - 1)).interval == value.interval
    assert binary(Op.AND, argument(0, 3), constant(7)).interval == Interval.unsigned(3)

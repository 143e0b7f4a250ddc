"""INCEPTIONN: each number as its rule says, bit for bit; bounds and bytes; the mean over a ring."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from p4reduce.errors import NotFiniteError
from p4reduce_lab.papers.inceptionn import Inceptionn, mean_over_ring

RULES = ("bounded", "published")


def published(value: Fraction, b: int) -> tuple[int, Fraction]:
    """(bits, what becomes of it) of a number in units of the scale, by its exponent, as the source has it."""
    if value == 0:
        return 0, Fraction(0)
    exponent = 127  # biased: 2^(exponent - 127) <= |value| < 2^(exponent - 126)
    while Fraction(2) ** (exponent - 127) > abs(value):
        exponent -= 1
    while Fraction(2) ** (exponent - 126) <= abs(value):
        exponent += 1
    least = 127 - b
    middle = least + math.ceil((127 - least) / 2)
    if exponent >= 127:
        return 32, value
    if exponent < least:
        return 0, Fraction(0)
    kept = 15 if exponent >= middle else 7
    return kept + 1, Fraction(math.copysign(math.floor(abs(value) * 2**kept), value)) / 2**kept


def bounded(value: Fraction, b: int) -> tuple[int, Fraction]:
    if abs(value) >= 1:
        return 32, value
    bits, units, most = (16, 2**15, 32767) if abs(value) >= Fraction(2) ** (7 - b) else (8, 2**b, min(127, 2**b - 1))
    number = min(math.floor(abs(value) * units + Fraction(1, 2)), most)
    return (bits, Fraction(math.copysign(number, value)) / units) if number else (0, Fraction(0))


def by_the_rule(values: np.ndarray, rule: str, b: int, exponent: int) -> tuple[list[int], list[float]]:
    one = Fraction(2) ** exponent
    found = [(published if rule == "published" else bounded)(Fraction(float(value)) / one, b) for value in values]
    return [bits for bits, _ in found], [float(value * one) for _, value in found]


def check(values: np.ndarray, rule: str, b: int, scale: float | str) -> None:
    codec = Inceptionn(2.0**-b, scale=scale, rule=rule)  # type: ignore[arg-type]
    exponent = math.frexp(float(np.abs(values).max(initial=0)))[1] if scale == "auto" else math.frexp(scale)[1] - 1  # type: ignore[arg-type]
    bits, expected = by_the_rule(values, rule, b, exponent)
    found, size = codec.sent(values)
    assert size == 2 + -(-len(values) // 4) + sum(bits) // 8
    assert found.dtype == np.float32
    assert found.tolist() == expected
    assert not np.signbit(found[found == 0]).any()  # one zero, so that all ranks have the same bits
    assert codec.sent(found)[0].tobytes() == found.tobytes()


near = st.integers(-20, 1).flatmap(lambda e: st.floats(-(2.0**e), 2.0**e, width=32))
numbers = st.one_of(
    near,
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.99999994, 1e-45, 0.5, 0.49999997, 2.0**-7, 0.00781, 3e38]),
)


@settings(max_examples=300)
@given(
    st.lists(numbers, max_size=40),
    st.sampled_from(RULES),
    st.integers(1, 15),
    st.sampled_from(["auto", 1.0, 2.0**-6, 2.0**5, 2.0**-148, 2.0**127]),
)
@example([1e-45, -1e-45, 3e-45], "bounded", 15, "auto")
@example([0.9999, 0.3], "bounded", 1, "auto")
@example([], "bounded", 10, "auto")
@pytest.mark.slow
def test_every_number_by_the_rule(values: list[float], rule: str, b: int, scale: float | str) -> None:
    check(np.array(values, np.float32), rule, b, scale)


def test_sizes_and_errors_of_the_rules() -> None:
    """Ours keeps its bound. The published rule does not, nor does anything of gradients far below the scale remain."""
    values = np.random.default_rng(1).standard_normal(20_000).astype(np.float32)
    one = 2.0 ** math.frexp(float(np.abs(values).max()))[1]

    def off_by(bound: float, rule: str) -> float:
        codec = Inceptionn(bound, rule=rule)  # type: ignore[arg-type]
        return float(np.abs(codec.sent(values)[0] - values).max()) / one

    for b in range(1, 16):
        assert off_by(2.0**-b, "bounded") <= 2.0**-b
    assert off_by(2.0**-6, "published") <= 2.0**-6
    for b in (8, 10):
        assert 2.0**-b < 0.99 * 2.0**-7 < off_by(2.0**-b, "published") < 2.0**-7
    small = Inceptionn(2.0**-10, scale=1.0, rule="published")
    assert not small.sent(values * np.float32(1e-5))[0].any()


def values_of(rank: int, elements: int) -> np.ndarray:
    return np.random.default_rng(rank).standard_normal(elements).astype(np.float32)


@pytest.mark.parametrize("elements", [0, 1, 3, 10, 1001])
@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 8])
def test_the_mean_within_the_bound(world_size: int, elements: int) -> None:
    values = [values_of(rank, elements) for rank in range(world_size)]
    given = [own.copy() for own in values]
    for codec in (Inceptionn(2.0**-10), Inceptionn(2.0**-6), Inceptionn(2.0**-8, scale=8.0, rule="published")):
        mean, sent = mean_over_ring(values, codec)
        exact = np.mean(np.array(values, np.float64), axis=0)
        bound = codec.bound if codec.rule == "bounded" else 2.0**-7
        scale = 8.0 if codec.scale == 8.0 else 2 * np.abs(values).max(initial=0)
        assert np.abs(mean - exact).max(initial=0) <= world_size * bound * scale
        assert all(own.tobytes() == before.tobytes() for own, before in zip(values, given, strict=True))
        hops = 2 * world_size * (world_size - 1)
        assert hops * 2 <= sent <= hops * 3 + 2 * (world_size - 1) * 4.25 * elements, "a head, and 32 bits a number"


def test_the_largest_numbers_stay_finite() -> None:
    largest = np.finfo(np.float32).max
    mean, _ = mean_over_ring([np.full(20, largest, np.float32)] * 3, Inceptionn(2.0**-3))
    assert np.isfinite(mean).all() and (mean > 0.7 * largest).all()


@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_one_ranks_nan_is_refused(bad: float, world_size: int) -> None:
    values = [values_of(rank, 50) for rank in range(world_size)]
    values[-1][-1] = bad
    with pytest.raises(NotFiniteError):
        mean_over_ring(values, Inceptionn())

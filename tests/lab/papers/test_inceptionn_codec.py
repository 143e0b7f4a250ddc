"""INCEPTIONN: each number as its rule says, bit for bit; bounds, bytes and refusals."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from p4reduce.errors import InvalidTensorError
from p4reduce_lab.papers.inceptionn.codec import Inceptionn

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
    data = codec.encode(values)
    assert len(data) == codec.head_bytes(len(values)) + sum(bits) // 8
    found = codec.decode(data, len(values))
    assert found.dtype == np.float32
    assert found.tolist() == expected
    assert not np.signbit(found[found == 0]).any()  # one zero, so that all ranks have the same bits
    again = codec.decode(codec.encode(found), len(values))
    assert again.tobytes() == found.tobytes()


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
    array = np.array(values, np.float32)
    check(array, rule, b, scale)


@pytest.mark.parametrize("elements", [1, 3, 4, 1023, 1024, 1025, 2050])
@pytest.mark.parametrize("rule", RULES)
def test_lengths_around_the_kernels_vector_width(rule: str, elements: int) -> None:
    values = np.random.default_rng(elements).standard_normal(elements).astype(np.float32)
    check(values, rule, 9, "auto")
    check(values, rule, 9, 1.0)


def test_sizes_and_errors_of_the_rules() -> None:
    """Ours keeps its bound. The published rule does not, nor does anything of gradients far below the scale remain."""
    values = np.random.default_rng(1).standard_normal(20_000).astype(np.float32)
    one = 2.0 ** math.frexp(float(np.abs(values).max()))[1]

    def off_by(bound: float, rule: str) -> float:
        codec = Inceptionn(bound, rule=rule)  # type: ignore[arg-type]
        return float(np.abs(codec.decode(codec.encode(values), len(values)) - values).max()) / one

    for b in range(1, 16):
        assert off_by(2.0**-b, "bounded") <= 2.0**-b
    assert off_by(2.0**-6, "published") <= 2.0**-6
    for b in (8, 10):
        assert 2.0**-b < 0.99 * 2.0**-7 < off_by(2.0**-b, "published") < 2.0**-7
    small = Inceptionn(2.0**-10, scale=1.0, rule="published")
    assert not small.decode(small.encode(values * np.float32(1e-5)), len(values)).any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_are_refused_with_their_place(bad: float) -> None:
    values = np.zeros((4, 5), np.float32)
    values[2, 3] = bad
    with pytest.raises(InvalidTensorError, match=r"element \[2, 3\] of fc is (nan|inf|-inf)"):
        Inceptionn().encode(values, "fc")


def test_other_types_and_settings_are_refused() -> None:
    with pytest.raises(InvalidTensorError, match="float64; convert it to float32"):
        Inceptionn().encode(np.zeros(3))
    for bound in (0.3, 0.0, -0.5, 1.0, 2.0**-16, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="power of two from"):
            Inceptionn(bound)
    for scale in (0.0, 25.0, -1.0, float("inf"), "largest", 2.0**200):
        with pytest.raises(ValueError, match='give "auto" or a power of two'):
            Inceptionn(scale=scale)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='give "bounded" or "published"'):
        Inceptionn(rule="other")  # type: ignore[arg-type]


def test_torch_tensors_of_any_layout() -> None:
    values = torch.randn(30, 20, generator=torch.Generator().manual_seed(1)).t()
    codec = Inceptionn()
    assert codec.encode(values).tobytes() == codec.encode(values.contiguous().numpy()).tobytes()


@settings(max_examples=300)
@given(st.binary(max_size=60), st.integers(0, 40))
def test_any_bytes_are_decoded_or_refused(data: bytes, elements: int) -> None:
    try:
        assert len(Inceptionn().decode(np.frombuffer(data, np.uint8), elements)) == elements
    except InvalidTensorError as error:
        assert "do all ranks encode alike?" in str(error)


@pytest.mark.parametrize("cut", [1, 2, 9])
def test_bytes_of_another_length_are_refused(cut: int) -> None:
    codec = Inceptionn()
    data = codec.encode(np.linspace(-1, 1, 30, dtype=np.float32))
    for other in (data[:-cut], np.append(data, np.zeros(cut, np.uint8))):
        with pytest.raises(InvalidTensorError, match="are no 30 numbers"):
            codec.decode(other, 30)
    beyond = data[: codec.head_bytes(2)].copy()
    beyond[2:] = 0x10  # a tag of a third number
    with pytest.raises(InvalidTensorError, match="beyond 2"):
        codec.decode(np.append(beyond, np.zeros(1, np.uint8)), 2)

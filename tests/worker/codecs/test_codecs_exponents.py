"""The exponents of a tensor's blocks against a definition in numpy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from p4reduce.codecs.arrays import exponents_of


def as_defined(flat: NDArray[np.float32], length: int) -> tuple[list[int], list[bool], bool]:
    bits = np.pad(flat, (0, -len(flat) % length)).reshape(-1, length).view(np.uint32)
    largest = (bits & np.uint32(0x7FFFFFFF)).max(axis=1, initial=0)
    nonzero = largest != 0
    return (largest >> 23).tolist(), nonzero.tolist(), bool(bits[~nonzero].any())


@pytest.mark.parametrize("length", [1, 3, 32, 128])
@pytest.mark.parametrize("elements", [0, 1, 31, 32, 33, 1000])
def test_exponents_are_those_of_the_definition(elements: int, length: int) -> None:
    rng = np.random.default_rng(elements)
    values = (rng.standard_normal(elements) * np.exp(20 * rng.standard_normal(elements))).astype(np.float32)
    values *= np.repeat(rng.random(-(-elements // length)) < 0.7, length)[:elements]
    odd = values.copy()
    odd[rng.random(elements) < 0.1] = -0.0
    odd[rng.random(elements) < 0.01] = np.nan
    odd[rng.random(elements) < 0.01] = -np.inf
    for flat in (values, odd, np.zeros(elements, np.float32), -np.zeros(elements, np.float32)):
        flat.flags.writeable = False
        found = exponents_of(flat, length)
        assert (found.largest.tolist(), found.nonzero.tolist(), found.negative_zeros) == as_defined(flat, length)
        assert found.finite == bool(np.isfinite(flat).all())
        assert found.dense == bool(found.nonzero.all())

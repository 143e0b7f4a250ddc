"""The ring: the mean within the codec's bound; numbers that are not finite are refused."""

from __future__ import annotations

import numpy as np
import pytest

from p4reduce.errors import NotFiniteError
from p4reduce_lab.papers.inceptionn.codec import Inceptionn
from p4reduce_lab.papers.inceptionn.ring import mean_over_ring


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

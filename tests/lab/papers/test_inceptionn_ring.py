"""The ring: the mean in the same bits on all ranks, within the codec's bound, and refused by all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from p4reduce.errors import NotFiniteError, PeerRefusedError, Reason
from p4reduce_lab.papers.inceptionn.codec import Inceptionn
from p4reduce_lab.papers.inceptionn.ring import Hop, mean_over_ring


def values_of(rank: int, elements: int) -> np.ndarray:
    return np.random.default_rng(rank).standard_normal(elements).astype(np.float32)


def ring_of(values: list[np.ndarray], codec: Inceptionn) -> list[Any]:
    """Return what the ranks return or raise; nothing travels: each hop's bytes go to the next rank's generator."""
    world_size = len(values)
    steps = [mean_over_ring(own, rank, world_size, codec, "x") for rank, own in enumerate(values)]
    outcomes: list[Any] = [None] * world_size
    received: list[Any] = [None] * world_size
    while None in [type(outcome) if outcome is not None else None for outcome in outcomes]:
        hops: list[Hop | None] = [None] * world_size
        for rank in range(world_size):
            try:
                hops[rank] = steps[rank].send(received[rank])
            except StopIteration as finished:
                outcomes[rank] = finished.value
            except (NotFiniteError, PeerRefusedError) as error:
                outcomes[rank] = error
        for rank, hop in enumerate(hops):
            if hop is not None:
                following = (rank + 1) % world_size
                expected = hops[following]
                assert expected is not None, "the ranks are out of step"
                assert len(hop.head) == codec.head_bytes(expected.elements)
                assert len(hop.body) == codec.body_bytes(hop.head)
                received[following] = np.concatenate([hop.head, hop.body])
    return outcomes


@pytest.mark.parametrize("elements", [0, 1, 3, 10, 1001])
@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 8])
def test_the_mean_within_the_bound_and_the_same_bits(world_size: int, elements: int) -> None:
    values = [values_of(rank, elements) for rank in range(world_size)]
    given = [own.copy() for own in values]
    for codec in (Inceptionn(2.0**-10), Inceptionn(2.0**-6), Inceptionn(2.0**-8, scale=8.0, rule="published")):
        means = ring_of(values, codec)
        assert all(mean.tobytes() == means[0].tobytes() for mean in means)
        exact = np.mean(np.array(values, np.float64), axis=0)
        bound = codec.bound if codec.rule == "bounded" else 2.0**-7
        scale = 8.0 if codec.scale == 8.0 else 2 * np.abs(values).max(initial=0)
        assert np.abs(means[0] - exact).max(initial=0) <= world_size * bound * scale
        assert all(own.tobytes() == before.tobytes() for own, before in zip(values, given, strict=True))


def test_the_largest_numbers_stay_finite() -> None:
    largest = np.finfo(np.float32).max
    for mean in ring_of([np.full(20, largest, np.float32)] * 3, Inceptionn(2.0**-3)):
        assert np.isfinite(mean).all() and (mean > 0.7 * largest).all()


@pytest.mark.parametrize("world_size", [1, 2, 3, 6])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_one_ranks_nan_is_refused_by_all_in_the_same_collective(bad: float, world_size: int) -> None:
    values = [values_of(rank, 50) for rank in range(world_size)]
    values[-1][-1] = bad
    *others, own = ring_of(values, Inceptionn())
    assert isinstance(own, NotFiniteError)
    for other in others:
        assert isinstance(other, PeerRefusedError)
        assert other.reasons == {world_size - 1: Reason.NOT_FINITE}

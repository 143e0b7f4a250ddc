"""All-reduces in virtual time: the sums are exact, and links take what their rates say."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from p4reduce_lab.bench.cases.racks_simulated import WIRE_OVERHEAD_BYTES, Links, Outcome, Simulation

ELEMENTS = 8 * 32 * 64 * 2
FAST = Links(10e9)


def tensor(rank: int) -> NDArray[np.float32]:
    """Whole numbers, of which a float32 holds every sum."""
    return np.random.default_rng(rank).integers(-1000, 1000, ELEMENTS).astype(np.float32)


def racks(count: int, size: int) -> list[range]:
    return [range(first, first + size) for first in range(0, count * size, size)]


def simulate(count: int, size: int, links: Links = FAST, seed: int = 0) -> Outcome:
    simulation = Simulation(racks(count, size), links, seed=seed)
    tensors = [tensor(rank) for rank in range(count * size)]
    expected = np.sum(tensors, axis=0)
    for _ in range(2):
        outcome, results = simulation.all_reduce(tensors)
        for result in results:
            assert np.array_equal(result, expected)
    return outcome


@pytest.mark.parametrize(("count", "size"), [(1, 2), (2, 2), (3, 8), (1, 32)])
def test_sums_are_exact_and_a_rank_s_bytes_do_not_depend_on_the_number_of_ranks(count: int, size: int) -> None:
    outcome = simulate(count, size)
    frames = ELEMENTS / (8 * 32)
    data = frames * (1088 + WIRE_OVERHEAD_BYTES)
    assert data < outcome.rank_bytes_up < 1.5 * data
    assert outcome.retransmissions == 0
    if count > 1:
        assert outcome.trunk_bytes_up == pytest.approx(outcome.rank_bytes_up, rel=0.01)
        assert outcome.trunk_bytes_down == pytest.approx(outcome.rank_bytes_down, rel=0.01)


def test_a_collective_takes_no_less_than_the_links_need() -> None:
    for links in (FAST, Links(1e9), Links(10e9, delay_s=1e-4), Links(10e9, oversubscription=8)):
        outcome, trunk = simulate(2, 2, links), links.conditions(2).trunk_bits_per_s
        assert outcome.seconds > 8 * outcome.rank_bytes_up / links.rank_bits_per_s + 4 * links.delay_s
        assert outcome.seconds > 8 * outcome.trunk_bytes_up / trunk + 4 * links.delay_s
    assert trunk == 2.5e9


def test_lost_frames_are_repaired_and_the_sums_stay_exact() -> None:
    outcome = simulate(2, 4, Links(10e9, loss=0.02), seed=3)
    assert outcome.retransmissions > 0

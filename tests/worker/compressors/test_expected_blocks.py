"""Collectives that are expected to be short open few slots, whatever comes; ranks must expect alike."""

from __future__ import annotations

import pytest
import torch

from p4reduce.codecs import Float32
from p4reduce.communicator import Communicator
from p4reduce.errors import CollectiveMismatchError
from p4reduce.protocol.window import Window, slots_for
from p4reduce.stats import CollectiveStats
from p4reduce.testing.local_group import LocalGroup


def test_one_slot_is_used_for_every_four_rounds() -> None:
    assert [slots_for(blocks, 8) for blocks in (0, 1, 32, 33, 64, 65, 10_000)] == [1, 1, 1, 2, 2, 3, 313]
    assert [slots_for(blocks, 4) for blocks in (16, 17)] == [1, 2]


@pytest.mark.parametrize(("expected", "slots"), [(0, 1), (3, 1), (40, 2), (100_000, 64), (None, 64)])
def test_the_sum_does_not_depend_on_what_is_expected(expected: int | None, slots: int) -> None:
    """600 blocks travel, whatever was expected."""

    def rank_main(comm: Communicator) -> int:
        given = torch.arange(600.0 * 32) + 1
        (total,) = comm.all_reduce_segments([Float32(given)], expected_blocks=expected)
        assert torch.equal(total, 3 * given)
        assert comm.last is not None
        return comm.last.slots

    with LocalGroup(3) as group:
        assert group.run(rank_main) == [slots] * 3


def test_ranks_that_expect_different_numbers_get_an_error() -> None:
    def rank_main(comm: Communicator) -> str:
        with pytest.raises(CollectiveMismatchError) as caught:
            comm.all_reduce_segments([Float32(torch.ones(500))], expected_blocks=100 + 100 * comm.rank)
        return str(caught.value)

    with LocalGroup(2) as group:
        assert all("the ranks called different collectives" in text for text in group.run(rank_main))


def test_a_short_collective_does_not_widen_the_window() -> None:
    def proposal(*, limited: bool, losses: int = 0) -> int:
        window = Window(256)
        window.finished(64, CollectiveStats(rounds=400, losses=losses), limited=limited)
        return window.proposal

    assert proposal(limited=False) == 128
    assert proposal(limited=True) == 64
    assert proposal(limited=True, losses=150) == 32

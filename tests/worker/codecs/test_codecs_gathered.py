"""Gathered: every rank's bytes, of any length, among other segments of one collective over a switch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from p4reduce.codecs import Floats, Gathered, Lanes
from p4reduce.codecs.raw import block_count
from p4reduce.communicator import Communicator
from p4reduce.errors import CollectiveMismatchError, InvalidTensorError
from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts.wire.geometry import DEFAULT, SMALL, Geometry

CAPACITY = 3000


def bytes_of_rank(rank: int, length: int) -> np.ndarray:
    return np.random.default_rng(rank).integers(1, 256, length, dtype=np.uint8)


def gather(
    given: list[np.ndarray], geometry: Geometry = DEFAULT, capacity: int = CAPACITY
) -> list[tuple[np.ndarray, int]]:
    """Return what each rank gets of one collective with sums before and after, and the bytes down."""
    ranks = len(given)

    def rank_main(comm: Communicator) -> tuple[np.ndarray, int]:
        before = Floats(torch.full((70,), 1.0 + comm.rank))
        after = Lanes(np.arange(-3, 4, dtype=np.int8), 16)
        middle = Gathered(given[comm.rank], capacity, comm.rank)
        dense, rows, lanes = comm.all_reduce_segments([before, middle, after])
        assert torch.equal(dense, torch.full((70,), ranks * (ranks + 1) / 2))
        assert lanes.tolist() == [ranks * value for value in range(-3, 4)]
        return rows, comm.stats.bytes_down

    with LocalGroup(ranks, geometry=geometry) as group:
        return group.run(rank_main)


@pytest.mark.parametrize("geometry", [DEFAULT, SMALL], ids=["default", "small"])
@pytest.mark.parametrize("world_size", range(1, 9))
def test_unequal_lengths(geometry: Geometry, world_size: int) -> None:
    lengths = [0 if rank == 1 else 1 + 397 * rank for rank in range(world_size)]
    given = [bytes_of_rank(rank, length) for rank, length in enumerate(lengths)]
    longest = block_count(max(lengths), geometry.block_words) * geometry.block_bytes
    for rows, _ in gather(given, geometry):
        assert rows.shape == (world_size, longest) and rows.dtype == np.uint8
        for row, mine in zip(rows, given, strict=True):
            assert row[: len(mine)].tolist() == mine.tolist()
            assert not row[len(mine) :].any()


@pytest.mark.parametrize("geometry", [DEFAULT, SMALL], ids=["default", "small"])
def test_blocks_of_zeros_inside_and_at_the_end(geometry: Geometry) -> None:
    """Zeros do not travel: neither those between other bytes nor those that end the data."""
    block = geometry.block_bytes
    given = [bytes_of_rank(rank, 5 * block) for rank in range(3)]
    given[0][block : 4 * block] = 0
    given[1][: 2 * block] = 0
    given[2][3 * block :] = 0
    given[1][4 * block :] = 0
    for rows, _ in gather(given, geometry):
        for row, mine in zip(rows, given, strict=True):
            assert row[: 5 * block].tolist() == mine.tolist()
    for rows, _ in gather([np.zeros(5 * block, np.uint8) for _ in range(3)], geometry):
        assert rows.shape == (3, 0)


def test_no_rank_has_any_bytes() -> None:
    for rows, _ in gather([np.zeros(0, np.uint8)] * 4):
        assert rows.shape == (4, 0)
    for rows, _ in gather([np.zeros(0, np.uint8)] * 2, capacity=0):
        assert rows.shape == (2, 0)


def test_the_bytes_down_are_those_given_and_not_the_capacity() -> None:
    """The second call alike is measured: the first opens the whole window."""
    given = [bytes_of_rank(rank, 1000 * (rank % 2)) for rank in range(4)]

    def rank_main(comm: Communicator) -> int:
        for _ in range(2):
            before = comm.stats.bytes_down
            comm.all_reduce_segments([Gathered(given[comm.rank], 10_000_000, comm.rank)])
        return comm.stats.bytes_down - before

    with LocalGroup(4) as group:
        spent = max(group.run(rank_main))
    assert 2000 < spent < 2 * 2000 + 1500  # eight blocks each, and headers


def test_full_to_capacity_and_beyond() -> None:
    full = bytes_of_rank(3, 700)
    for rows, _ in gather([full, full[:-1]], capacity=700):
        assert rows[0, :700].tolist() == full.tolist()
    with pytest.raises(InvalidTensorError, match="coordinates: 700 B, more than the 699 B all ranks agreed on"):
        Gathered(full, 699, 0, name="coordinates")


def test_ranks_of_different_capacity_get_an_error() -> None:
    def rank_main(comm: Communicator) -> bool:
        with pytest.raises(CollectiveMismatchError):
            comm.all_reduce_segments([Gathered(bytes_of_rank(0, 10), 100 + comm.rank, comm.rank)])
        return True

    with LocalGroup(2) as group:
        assert group.run(rank_main) == [True, True]

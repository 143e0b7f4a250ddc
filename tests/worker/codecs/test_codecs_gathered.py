"""Gathered: every rank's bytes, of any length, among other segments of one collective over a switch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from p4reduce.codecs import Floats, Gathered, Lanes
from p4reduce.codecs.raw import block_count
from p4reduce.communicator import Communicator
from p4reduce.errors import InvalidTensorError
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


def spans_of_zeros(geometry: Geometry) -> list[np.ndarray]:
    """Return the bytes of three ranks, with whole blocks of zeros within and at the end."""
    given, block = [bytes_of_rank(rank, 5 * geometry.block_bytes) for rank in range(3)], geometry.block_bytes
    for rank, begin, end in ((0, 1, 4), (1, 0, 2), (1, 4, 5), (2, 3, 5)):
        given[rank][begin * block : end * block] = 0
    return given


@pytest.mark.parametrize("geometry", [DEFAULT, SMALL], ids=["default", "small"])
def test_every_rank_gets_the_bytes_of_each(geometry: Geometry) -> None:
    """Zeros do not travel: neither those between other bytes nor those that end the data."""
    of_rank = [bytes_of_rank(rank, 0 if rank == 1 else 1 + 397 * rank) for rank in range(8)]
    none = [np.zeros(length, np.uint8) for length in (0, 0, 5 * geometry.block_bytes)]
    for given in (of_rank[:1], of_rank[:2], of_rank, spans_of_zeros(geometry), none):
        longest = max(block_count(len(np.trim_zeros(mine, "b")), geometry.block_words) for mine in given)
        for rows, _ in gather(given, geometry):
            assert rows.shape == (len(given), longest * geometry.block_bytes) and rows.dtype == np.uint8
            for row, mine in zip(rows, given, strict=True):
                shown = mine[: len(row)]
                assert row[: len(shown)].tolist() == shown.tolist() and not mine[len(row) :].any()
                assert not row[len(mine) :].any()
    assert [rows.shape for rows, _ in gather([np.zeros(0, np.uint8)] * 2, capacity=0)] == [(2, 0)] * 2


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

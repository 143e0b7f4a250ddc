"""Which blocks of a tensor are not zero."""

from __future__ import annotations

import numpy as np
import pytest

from p4reduce_lab.bench.tensors import ALL_OVERLAP, BLOCK_ELEMENTS, NONE_OVERLAP, RANDOM, Kind, tensor

RANKS, BLOCKS = 4, 400


def blocks_of(kind: Kind, rank: int) -> set[int]:
    filled = tensor(kind, rank, RANKS).reshape(-1, BLOCK_ELEMENTS)
    return set(np.flatnonzero(filled.any(axis=1)).tolist())


@pytest.mark.parametrize(
    ("pattern", "union"), [(ALL_OVERLAP, {40}), (NONE_OVERLAP, {160}), (RANDOM, set(range(41, 160)))]
)
def test_the_share_and_the_overlap(pattern: str, union: set[int]) -> None:
    found = [blocks_of(Kind(BLOCKS * BLOCK_ELEMENTS, 0.1, pattern), rank) for rank in range(RANKS)]
    assert [len(blocks) for blocks in found] == [40] * RANKS
    assert len(set.union(*found)) in union


def test_a_dense_tensor_has_no_zero_block_and_differs_by_rank() -> None:
    kind = Kind(BLOCKS * BLOCK_ELEMENTS)
    assert len(blocks_of(kind, 0)) == BLOCKS
    assert not np.array_equal(tensor(kind, 0, RANKS), tensor(kind, 1, RANKS))
    assert tensor(Kind(BLOCK_ELEMENTS + 5, 0.5), 0, 2).shape == (BLOCK_ELEMENTS + 5,), "a part of a block at the end"
    with pytest.raises(ValueError, match="must overlap"):
        tensor(Kind(BLOCKS * BLOCK_ELEMENTS, 0.5, NONE_OVERLAP), 0, RANKS)

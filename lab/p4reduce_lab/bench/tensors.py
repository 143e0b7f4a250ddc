"""Tensors to sum, as OmniReduce's evaluation makes them: a share of the blocks is not zero."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK_ELEMENTS: Final = 32
RANDOM, ALL_OVERLAP, NONE_OVERLAP = "random", "all-overlap", "none-overlap"
"""The blocks that are not zero: random ones on each rank; the same on all; on no two ranks the same."""
_SEED: Final = 7


class Kind(NamedTuple):
    """Float32 elements, the share of blocks that are not zero, and which they are (a pattern as above)."""

    elements: int
    density: float = 1.0
    pattern: str = ALL_OVERLAP


def tensor(kind: Kind, rank: int, world_size: int) -> NDArray[np.float32]:
    """Return this rank's tensor [elements], the same each time. Raises ValueError where the ranks must overlap."""
    own = np.random.default_rng((_SEED, rank))
    if kind.density >= 1:
        return own.standard_normal(kind.elements, np.float32)
    blocks = -(-kind.elements // BLOCK_ELEMENTS)
    filled: NDArray[Any] = np.zeros((blocks, BLOCK_ELEMENTS), np.float32)
    chosen = choose(kind, rank, world_size)
    filled[chosen] = own.standard_normal((len(chosen), BLOCK_ELEMENTS), np.float32)
    return filled.reshape(-1)[: kind.elements]


def total(kind: Kind, world_size: int) -> NDArray[np.float32]:
    """Return the sum of all ranks' tensors [elements]."""
    added = tensor(kind, 0, world_size)
    for rank in range(1, world_size):
        added += tensor(kind, rank, world_size)
    return added


def choose(kind: Kind, rank: int, world_size: int) -> NDArray[np.intp]:
    """Return the numbers of this rank's blocks that are not zero. Raises ValueError like `tensor`."""
    blocks = -(-kind.elements // BLOCK_ELEMENTS)
    count = max(1, round(kind.density * blocks))
    of_all = np.random.default_rng(_SEED)
    if kind.pattern == RANDOM:
        return np.random.default_rng((_SEED, 1, rank)).permutation(blocks)[:count]
    if kind.pattern == ALL_OVERLAP:
        return of_all.permutation(blocks)[:count]
    if world_size * count > blocks:
        raise ValueError(f"{world_size} ranks with {kind.density:.0%} of the blocks each must overlap")
    return of_all.permutation(blocks)[rank * count : (rank + 1) * count]

"""Random rounds through one switch or a tree: random columns, and words in the full 32-bit range."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from p4reduce_contracts import wire
from p4reduce_contracts.wire import Geometry
from p4reduce_contracts.wire.check import check_of

SLOT = 1
Contribution = Callable[[int, int, tuple[int, ...], dict[int, bytes]], bytes]
"""PipelineRig.contribution: slot, round, keys and blocks by column to a payload."""
Outputs = list[tuple[int, bytes]]


class Network(Protocol):
    """A PipelineRig or a TreeRig."""

    geometry: Geometry
    world_size: int

    def send(self, rank: int, payload: bytes) -> Outputs: ...


@dataclass(frozen=True)
class RandomRound:
    """What all ranks together gave."""

    geometry: Geometry
    number: int
    keys: tuple[int, ...]
    sums: dict[int, NDArray[np.uint64]]

    def check(self, result: wire.Frame) -> None:
        """Compare a RESULT with numpy's sums modulo 2^32."""
        blocks = b"".join((self.sums[column] % 2**32).astype(">u4").tobytes() for column in sorted(self.sums))
        assert (result.slot, result.round, result.keys) == (SLOT, self.number, self.keys)
        assert (result.present, result.blocks) == (sum(1 << column for column in self.sums), blocks)
        assert result.check == check_of(result.present, blocks, self.geometry.block_words)


def random_rounds(rig: Network, contribution: Contribution, count: int) -> Iterator[tuple[RandomRound, Outputs]]:
    """Yield rounds with what the last contribution of each brings; those before it bring nothing."""
    ranks, columns, words = rig.world_size, rig.geometry.columns, rig.geometry.block_words
    numbers = np.random.default_rng(ranks)
    for number in range(count):
        sums: dict[int, NDArray[np.uint64]] = {}
        keys = numbers.integers(0, 2**32, (ranks, columns), dtype=np.uint64)
        outputs: Outputs = []
        for rank in numbers.permutation(ranks):
            blocks = {}
            for column in range(columns):
                if numbers.random() < 0.5:
                    data = numbers.integers(0, 2**32, words, dtype=np.uint64)
                    blocks[column] = data.astype(">u4").tobytes()
                    sums[column] = sums.get(column, np.uint64(0)) + data
            assert outputs == []
            outputs = rig.send(int(rank), contribution(SLOT, number, tuple(map(int, keys[rank])), blocks))
        yield RandomRound(rig.geometry, number, tuple(map(int, keys.min(axis=0))), sums), outputs

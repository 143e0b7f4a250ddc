"""Random jobs for the engine: what each rank calls, and what the answer has to be, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from hypothesis import strategies as st

from p4reduce.codecs import Floats, Int32
from p4reduce.codecs.raw import block_count, raw_blocks
from p4reduce.errors import Reason
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.call import Call
from p4reduce.testing.world import Member, NetworkConditions
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch, Level
from p4reduce_contracts.wire.calls import CodecId, Kind
from p4reduce_contracts.wire.geometry import Geometry
from rigs.float_sums import by_numpy
from rigs.secret import rank_secret

JOB, EPOCH = 3, 9


@dataclass
class Scenario:
    """`members` to run, and per call the tensor every rank has to end with (None: nothing), or who refuses and why."""

    members: list[Member]
    expected: list[np.ndarray | dict[int, Reason] | None]

    def check(self, results: Sequence[Sequence[Any]]) -> None:
        for rank, mine in enumerate(results):
            assert len(mine) == len(self.expected), f"rank {rank} finished {len(mine)} collectives"
            for got, want in zip(mine, self.expected, strict=True):
                if want is None:
                    assert got == []
                elif isinstance(want, dict):
                    assert got == want
                else:
                    (tensor,) = got
                    assert tensor.dtype == want.dtype
                    assert tensor.tobytes() == want.tobytes(), f"rank {rank}"


def sum_of_float32(tensors: Sequence[np.ndarray], block_words: int) -> np.ndarray:
    """The sum as docs/protocol.md defines it."""
    return by_numpy([torch.from_numpy(tensor.reshape(-1)) for tensor in tensors], 32, block_words).numpy()


def random_tensors(  # noqa: PLR0917
    rng: np.random.Generator, world_size: int, size: int, density: float, dtype: type, block_words: int
) -> list[np.ndarray]:
    """One tensor a rank, in which about `density` of the blocks hold something."""
    tensors = []
    for _ in range(world_size):
        if dtype is np.int32:
            tensor = rng.integers(-(2**31), 2**31, size).astype(np.int32)
        else:
            tensor = (rng.standard_normal(size) * 2.0 ** rng.integers(-20, 20, size)).astype(np.float32)
        blocks = -(-size // block_words)
        kept = np.repeat(rng.random(blocks) < density, block_words)[:size]
        tensors.append(np.where(kept, tensor, 0).astype(dtype))
    return tensors


def build(
    seed: int,
    world_size: int,
    geometry: Geometry,
    slots: int,
    *,
    collectives: int = 3,
    largest: int = 400,
    first_round: int = 0,
    timeout_s: float = 300.0,
    epoch: int = EPOCH,
    refusals: float = 0.0,
    job: int = JOB,
    levels: Callable[[int], tuple[Level, ...]] | None = None,
    switches: int = 1,
) -> Scenario:
    """A job of random collectives; slot rounds start near `first_round`, each slot a little different.

    `refusals`: the chance of a rank to refuse a collective. `levels`: those of a rank's lease; one switch without.
    `switches`: number of switches side by side, of which each has `slots` slots.
    """
    refusing = np.random.default_rng([seed, 1])
    rng = np.random.default_rng(seed)
    starts = [(first_round + int(rng.integers(0, 3))) & 0xFFFFFFFF for _ in range(switches * slots)]
    calls: list[list[tuple[Blocks, Call]]] = [[] for _ in range(world_size)]
    expected: list[np.ndarray | dict[int, Reason] | None] = []
    words = geometry.block_words
    for number in range(collectives):
        kind = rng.choice(["float32", "int32", "gather", "barrier"], p=[0.4, 0.3, 0.2, 0.1])
        size, dense = int(rng.integers(1, largest)), bool(rng.random() < 0.3)
        density = float(rng.choice([0.0, 0.05, 0.3, 1.0]))
        if kind == "barrier":
            expected.append(None)
            sources: list[Blocks] = [Blocks() for _ in range(world_size)]
            call = Call(number, Kind.BARRIER)
        elif kind == "gather":
            each = block_count(size, words)
            data = [rng.integers(0, 256, size).astype(np.uint8) for _ in range(world_size)]
            rows = np.stack([np.pad(part, (0, 4 * words * each - size)) for part in data])
            reached = np.flatnonzero(rows.reshape(world_size, each, 4 * words).any(axis=(0, 2)))
            expected.append(rows[:, : 4 * words * (reached.max(initial=-1) + 1)])  # blocks that some rank's bytes reach
            sources = [raw_blocks(d, words, size, rank, world_size) for rank, d in enumerate(data)]
            call = Call(number, Kind.ALL_GATHER, CodecId.RAW, 0, size)
        elif kind == "int32":
            tensors = random_tensors(rng, world_size, size, density, np.int32, words)
            expected.append(np.sum(tensors, axis=0, dtype=np.int32))
            sources = [Int32(t).bind(world_size, words, dense) for t in tensors]
            call = Call(number, Kind.ALL_REDUCE, CodecId.INT32, 0, size)
        else:
            tensors = random_tensors(rng, world_size, size, density, np.float32, words)
            expected.append(sum_of_float32(tensors, words))
            sources = [Floats(t).bind(world_size, words, dense) for t in tensors]
            call = Call(number, Kind.ALL_REDUCE, CodecId.FLOAT32, 0, size)
        refused = {
            rank: list(Reason)[int(refusing.integers(0, len(Reason)))]
            for rank in range(world_size)
            if refusing.random() < refusals
        }
        if refused:
            expected[-1] = refused
        for rank in range(world_size):
            if rank in refused:
                calls[rank].append((Blocks(), Call(number, Kind.REFUSED, detail=refused[rank])))
            else:
                calls[rank].append((sources[rank], call))
    members = [
        Member(
            Lease(
                job,
                "random",
                epoch,
                rank,
                world_size,
                switches * slots,
                geometry.columns,
                geometry.block_words,
                switches=tuple(
                    LeasedSwitch(secret=number << 32 ^ rank_secret(rank), levels=() if levels is None else levels(rank))
                    for number in range(switches)
                ),
            ),
            calls[rank],
            list(starts),
            timeout_s,
        )
        for rank in range(world_size)
    ]
    return Scenario(members, expected)


FIRST_ROUNDS: Final = st.sampled_from([0, 2**31 - 2, 2**32 - 3])
"""The first rounds of a job's slots: the first, and just before the numbers change their sign and wrap."""


def network_conditions(drop: float = 0.3, duplicate: float = 0.4) -> st.SearchStrategy[NetworkConditions]:
    """Draw from calm to terrible: `drop` and `duplicate` are the largest shares of frames."""
    return st.builds(
        NetworkConditions,
        drop=st.sampled_from([0.0, 0.05, drop]),
        duplicate=st.sampled_from([0.0, 0.1, duplicate]),
        late=st.sampled_from([0.0, 0.1, 0.3]),
        delay_s=st.sampled_from([0.0, 0.001, 0.02]),
    )

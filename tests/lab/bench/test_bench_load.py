"""What the benchmark sends: frames that the program takes, round after round, and tensors with blocks of zeros."""

from __future__ import annotations

import numpy as np
import pytest

from p4reduce_contracts import artifacts
from p4reduce_controller.config import SwitchConfig
from p4reduce_lab.bench.load import Contributions, ethernet_addresses, make_grant
from p4reduce_lab.bench.tensors import ALL_OVERLAP, BLOCK_ELEMENTS, NONE_OVERLAP, RANDOM, Kind, tensor
from p4reduce_runtime import pipeline_folders
from p4reduce_switch.program import Program
from rigs.granted import admit


@pytest.mark.parametrize(("ranks", "slots"), [(4, 3), (2, 1)])
def test_every_frame_counts_and_every_round_ends(ranks: int, slots: int) -> None:
    folder, switch = pipeline_folders.find("small"), SwitchConfig()
    loaded = Program((folder / pipeline_folders.PROGRAM).read_bytes())
    grant = make_grant(ethernet_addresses(ranks), slots)
    admit(loaded, grant, switch)
    shape = artifacts.geometry(folder)
    frames = Contributions(shape, grant, switch, encapsulated=True)
    frames._number = 0xFFFE  # across the end of 16 bits, of which the checksums know
    results = 0
    for _ in range(3):
        frames.move_on()
        for number, frame in enumerate(frames.bytes):
            results += len(loaded.process(grant.children[number % ranks].address.ingress_port, frame.tobytes()))
    assert results == 3 * len(frames)
    drops = loaded.counters["MainIngress.drops"]
    assert [drops.read(reason)[0] for reason in range(drops.size)] == [0] * drops.size
    assert loaded.counters["MainIngress.contributions"].read(grant.job_id)[0] == 3 * len(frames)


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

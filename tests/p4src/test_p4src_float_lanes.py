"""Negative numbers in lanes of 16 and 8 bits, added by the compiled programs of both targets: borrows are undone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from p4reduce.codecs import Floats
from p4reduce.protocol.call import Call, Kind
from p4reduce.testing.world import Member, NetworkConditions, OneSwitch, World
from p4reduce_contracts.jobs.lease import Lease
from rigs.float_sums import by_numpy
from rigs.pipeline import EPOCH, JOB, SLOT_COUNT, PipelineRig, payload_of, rank_port
from rigs.secret import rank_secret
from rigs.tna_rig import TnaRig

RANKS = 3


class RigSwitch:
    """A rig as the switch of a network in memory."""

    def __init__(self, rig: PipelineRig) -> None:
        self._rig = rig
        self._ranks = {rank_port(rank): rank for rank in range(RANKS)}

    def process(self, rank: int, payload: bytes) -> list[tuple[int, bytes]]:
        return [(self._ranks[port], payload_of(frame)) for port, frame in self._rig.send(rank, payload)]


@pytest.mark.parametrize("bits", [16, 8])
@pytest.mark.parametrize(
    ("rig", "geometry"),
    [(PipelineRig, "small"), (PipelineRig, "tofino1-4x8"), (TnaRig, "tofino1-4x8"), (TnaRig, "tofino2-4x16")],
)
def test_sums_of_negative_lanes_are_right(rig: type[PipelineRig], geometry: str, bits: int) -> None:
    made = rig(geometry, RANKS)
    columns, words = made.geometry.columns, made.geometry.block_words
    rng = np.random.default_rng(5)
    tensors = [
        torch.from_numpy(-np.abs(rng.standard_normal(7 * words * 4 + 3)).astype(np.float32)) for _ in range(RANKS)
    ]
    tensors[0][::3] *= -1
    members = []
    for rank, tensor in enumerate(tensors):
        segment = Floats(tensor, bits)
        call = Call(0, Kind.ALL_REDUCE, segment.codec, segment.detail, segment.elements, segment.layout)
        lease = Lease(JOB, "lanes", EPOCH, rank, RANKS, SLOT_COUNT, columns, words, secret=rank_secret(rank))
        members.append(Member(lease, [(segment.bind(RANKS, words, False), call)], [0] * SLOT_COUNT))
    results = World(OneSwitch(RigSwitch(made)), members, NetworkConditions(drop=0.05), 1).run()
    wanted = by_numpy(tensors, bits, words).numpy()
    for ((found,),) in results:
        np.testing.assert_array_equal(found, wanted)

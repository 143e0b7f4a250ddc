"""No RESULT outgrows the frame it answers by more than BMv2 has room for; the zeros this takes change no sum."""

from __future__ import annotations

import numpy as np
import pytest

from p4reduce.codecs import Floats, Int32
from p4reduce.protocol.call import Call, CodecId, Kind
from p4reduce.protocol.collective import Collective
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.frames import unpack
from p4reduce_contracts.wire.geometry import DEFAULT

SLOTS, BLOCKS = 4, 152


def run(tensors: list[np.ndarray], codec: type[Int32] | type[Floats]) -> tuple[list[np.ndarray], list[bytes]]:
    """All ranks' results of one all-reduce over a perfect network, and every contribution sent.

    The reference switch fails the test when a RESULT has no room in BMv2.
    """
    world_size = len(tensors)
    switch = ReferenceSwitch(DEFAULT, SLOTS)
    switch.add_job(1, 7, world_size, 0, SLOTS)
    ranks = []
    for rank, tensor in enumerate(tensors):
        lease = Lease(1, "test", 7, rank, world_size, SLOTS, DEFAULT.columns, DEFAULT.block_words)
        source = codec(tensor).bind(world_size, DEFAULT.block_words, False)
        call = Call(0, Kind.ALL_REDUCE, CodecId.INT32, 0, tensor.size)
        ranks.append(Collective(lease, [0] * SLOTS, source, call, 5.0))
    queue = [(rank, frame) for rank, collective in enumerate(ranks) for frame in collective.start(0.0)]
    sent = []
    while queue:
        rank, frame = queue.pop(0)
        sent.append(frame)
        for to, answer in switch.process(rank, frame):
            queue += [(to, more) for more in ranks[to].receive(answer, 0.0)]
    assert all(collective.done for collective in ranks)
    return [collective.result()[0] for collective in ranks], sent


@pytest.mark.parametrize("holder", [0, 1, 2])
@pytest.mark.parametrize(("codec", "dtype"), [(Int32, np.int32), (Floats, np.float32)])
def test_one_rank_holds_everything(holder: int, codec: type[Int32], dtype: type) -> None:
    tensors = [np.zeros(BLOCKS * DEFAULT.block_words, dtype) for _ in range(3)]
    tensors[holder][:] = np.arange(1, tensors[0].size + 1)
    results, sent = run(tensors, codec)
    for result in results:
        assert np.array_equal(result, tensors[holder])
    largest = max(len(frame) for frame in sent)
    assert largest == DEFAULT.max_frame_bytes
    helpers = [unpack(DEFAULT, frame).present.bit_count() for frame in sent if len(frame) < largest]
    assert max(helpers) == 4, "ranks with nothing to add make room with four blocks of zeros, no more"


@pytest.mark.parametrize(
    ("expected", "own", "sent"),
    [
        (0xFF, 0xFF, 0xFF),
        (0xFF, 0x0F, 0x0F),
        (0xFF, 0x07, 0x0F),
        (0xFF, 0x00, 0x0F),
        (0xF1, 0x10, 0x10),
        (0x1F, 0x00, 0x01),
    ],
)
def test_only_as_many_zeros_as_needed_and_at_their_columns(expected: int, own: int, sent: int) -> None:
    """One slot; rank 1 holds the columns of `own`, rank 0 those of `expected`."""
    columns = np.arange(DEFAULT.columns)
    tensors = [np.repeat(mask >> columns & 1, DEFAULT.block_words).astype(np.int32) for mask in (expected, own)]
    results, frames = run(tensors, Int32)
    assert all(np.array_equal(result, tensors[0] + tensors[1]) for result in results)
    first, second = (unpack(DEFAULT, frame) for frame in frames[-2:])
    assert (first.present, second.present) == (expected, sent)
    blocks = np.frombuffer(second.blocks, ">i4").reshape(-1, DEFAULT.block_words)
    assert blocks.tolist() == [[own >> column & 1] * DEFAULT.block_words for column in columns if sent >> column & 1]

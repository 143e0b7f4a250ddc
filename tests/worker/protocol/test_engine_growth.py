"""No RESULT outgrows the frame it answers by more than BMv2 has room for; the zeros this takes change no sum."""

from __future__ import annotations

import numpy as np
import pytest

from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts.wire.frames import Frame, unpack
from p4reduce_contracts.wire.geometry import DEFAULT


@pytest.mark.parametrize(
    ("expected", "own", "sent"),
    [(0xFF, *both) for both in ((0xFF, 0xFF), (0x0F, 0x0F), (0x07, 0x0F), (0x00, 0x0F))]
    + [(0xF1, 0x10, 0x10), (0x1F, 0x00, 0x01)],
)
def test_only_as_many_zeros_as_needed_and_at_their_columns(expected: int, own: int, sent: int) -> None:
    """One slot; rank 1 holds the columns of `own`, rank 0 those of `expected`."""
    columns, frames = np.arange(DEFAULT.columns), dict[int, Frame]()
    tensors = [np.repeat(mask >> columns & 1, DEFAULT.block_words).astype(np.int32) for mask in (expected, own)]

    def note(rank: int, payload: bytes) -> bool:
        frame = unpack(DEFAULT, payload)
        if frame.round == 1:  # after the opening round
            frames[rank] = frame
        return False

    with LocalGroup(2, lose=note) as group:  # whose switch fails where a RESULT has no room in BMv2
        for result in group.run(lambda comm: comm.all_reduce(tensors[comm.rank])):
            assert np.array_equal(result, tensors[0] + tensors[1])
    assert (frames[0].present, frames[1].present) == (expected, sent)
    blocks = np.frombuffer(frames[1].blocks, ">i4").reshape(-1, DEFAULT.block_words)
    assert blocks.tolist() == [[own >> column & 1] * DEFAULT.block_words for column in columns if sent >> column & 1]

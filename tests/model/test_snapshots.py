"""The engine's state as a value: copied, compared and restored in one call."""

from __future__ import annotations

import numpy as np
import pytest

from model.snapshots import RestorableCollective
from p4reduce.codecs import Floats
from p4reduce.protocol.call import Call, CodecId, Kind
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.geometry import SMALL

SLOTS, BLOCKS = 4, 40


def make(*, in_place: bool = False) -> RestorableCollective:
    lease = Lease(1, "test", 7, 0, 1, SLOTS, SMALL.columns, SMALL.block_words)
    tensor = np.arange(1, BLOCKS * SMALL.block_words - 2, dtype=np.float32)
    tensor[5 * SMALL.block_words : 9 * SMALL.block_words] = 0
    call = Call(0, Kind.ALL_REDUCE, CodecId.FLOAT32, 0, tensor.size)
    source = Floats(tensor, out=tensor if in_place else None).bind(1, SMALL.block_words, False)
    return RestorableCollective(lease, [0] * SLOTS, source, call, 5.0)


def bursts() -> list[list[bytes]]:
    """The answers that one rank gets, burst by burst."""
    switch, collective = ReferenceSwitch(SMALL, SLOTS), make()
    switch.add_job(1, 7, 1, 0, SLOTS)
    sent, found = collective.start(0.0), []
    while not collective.done:
        found.append([answer for frame in sent for _, answer in switch.process(0, frame)])
        sent = collective.receive_burst(found[-1], float(len(found)))
    return found


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("after", range(4))
def test_a_restored_collective_goes_on_in_the_same_way(after: int, in_place: bool) -> None:
    answers = bursts()
    mine = make(in_place=in_place)
    mine.start(0.0)
    for number, burst in enumerate(answers[:after], 1):
        mine.receive_burst(burst, float(number))
    kept = mine.snapshot()
    ends = []
    for _ in range(2):
        frames = [mine.on_timer(after + 0.9)]
        for number, burst in enumerate(answers[after:], after + 1):
            frames.append(mine.receive_burst(burst, float(number)))
        (result,) = mine.result()
        ends.append((frames, mine.snapshot(), mine.stats.copy(), result.tobytes(), mine.next_timer))
        mine.restore(kept)
        assert mine.snapshot() == kept and not mine.done
    assert ends[0] == ends[1]

"""The engine's state as a value: copied, compared and restored in one call."""

from __future__ import annotations

import numpy as np
import pytest

from model.snapshots import RestorableCollective
from p4reduce.codecs import Floats
from p4reduce.errors import Reason
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.call import Call, CodecId, Kind
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire import SMALL

SLOTS, BLOCKS = 4, 40


def make(rank: int = 0, world_size: int = 1, *, refuses: bool = False, in_place: bool = False) -> RestorableCollective:
    lease = Lease(1, "test", 7, rank, world_size, SLOTS, SMALL.columns, SMALL.block_words)
    tensor = np.arange(1, BLOCKS * SMALL.block_words - 2, dtype=np.float32)
    tensor[5 * SMALL.block_words : 9 * SMALL.block_words] = 0
    call = Call(0, Kind.ALL_REDUCE, CodecId.FLOAT32, 0, tensor.size)
    if refuses:
        return RestorableCollective(
            lease, [0] * SLOTS, Blocks(), Call(0, Kind.REFUSED, detail=Reason.NOT_FINITE), 5.0, window=SLOTS
        )
    source = Floats(tensor, out=tensor if in_place else None).bind(world_size, SMALL.block_words, False)
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


def test_the_same_frames_give_equal_snapshots_and_another_frame_gives_a_different_one() -> None:
    answers = bursts()
    one, other = make(), make()
    assert one.snapshot() == other.snapshot()
    for collective in (one, other):
        collective.start(0.0)
    assert one.snapshot() == other.snapshot()
    one.receive_burst(answers[0], 1.0)
    assert one.snapshot() != other.snapshot()
    for answer in answers[0]:
        other.receive(answer, 1.0)
    assert one.snapshot() == other.snapshot()
    assert len({one.snapshot(), other.snapshot()}) == 1
    one.receive(answers[1][0], 2.0)
    assert one.snapshot() != other.snapshot()
    other.receive(b"no frame", 2.0)
    assert one.stats.malformed == 0 and one.snapshot() != other.snapshot()


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


def test_another_collective_made_alike_restores_a_snapshot() -> None:
    answers = bursts()
    one, other = make(), make()
    one.start(0.0)
    one.receive_burst(answers[0][:2], 1.0)
    other.restore(one.snapshot())
    assert other.snapshot() == one.snapshot()
    assert other.receive_burst(answers[0][2:], 1.5) == one.receive_burst(answers[0][2:], 1.5)


def test_slots_that_a_refusal_opened_are_closed_again_by_restoring() -> None:
    switch = ReferenceSwitch(SMALL, SLOTS)
    switch.add_job(1, 7, 2, 0, SLOTS)
    ranks = [make(0, 2, refuses=True), make(1, 2)]
    sent = [(rank, frame) for rank, collective in enumerate(ranks) for frame in collective.start(0.0)]
    answers = [answer for rank, frame in sent for to, answer in switch.process(rank, frame) if to == 0]
    before = ranks[0].snapshot()
    opened = ranks[0].receive_burst(answers[:1], 0.1)
    assert (ranks[0].slots, len(opened), ranks[0].stats.refused) == (SLOTS, SLOTS - 1, 1)
    after = ranks[0].snapshot()
    ranks[0].restore(before)
    assert (ranks[0].slots, ranks[0].refusals, ranks[0].stats.refused) == (1, {}, 0)
    assert ranks[0].receive_burst(answers[:1], 0.1) == opened
    assert ranks[0].snapshot() == after

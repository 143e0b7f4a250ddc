"""When frames are sent again: the rules one at a time, and what they give over a network that loses."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest

from p4reduce.codecs import Int32
from p4reduce.errors import Reason
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.call import Call
from p4reduce.protocol.collective import Collective
from p4reduce.protocol.initial_state import Records
from p4reduce.protocol.recovery import (
    add_sample,
    begin,
    on_frame_sent,
    on_loss_detection_timeout,
    on_result,
    set_loss_detection_timer,
)
from p4reduce.protocol.rtt import RoundTrip
from p4reduce.protocol.timing import MAX_PTO_S
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce.testing.world import Member, NetworkConditions, RootSwitches, World
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.calls import CodecId, Kind
from p4reduce_contracts.wire.geometry import DEFAULT

ROUND_S = 0.004


class Slots:
    """Slots in their second round, of which each sends a frame at 0, 1 µs apart; the path is known."""

    def __init__(self, count: int, *, opening: bool = False, sent: int | None = None) -> None:
        """`sent`: how many of them send a frame; None: all."""
        self.round_trip = RoundTrip()
        tensor = np.ones(count * DEFAULT.frame_words, np.int32)
        lease = Lease(1, "test", 7, 0, 1, count, DEFAULT.columns, DEFAULT.block_words)
        source = Int32(tensor).bind(1, DEFAULT.block_words, True)
        call = Call(0, Kind.ALL_REDUCE, CodecId.INT32, 0, len(tensor))
        self.engine = Collective(Records(lease, source.n_blocks, round_trip=self.round_trip), source, call, 40.0).engine
        self.path: Any = self.engine.path[0]
        self.loss: Any = self.engine.loss[0]
        self.slots: Any = self.engine.slots
        for _ in range(50):
            add_sample(self.path, ROUND_S, 0.00001)
        begin(self.engine, 0.0)
        self.slots["opening"], self.slots["seen"] = opening, -1
        for index in range(count if sent is None else sent):
            self.sent(index, index * 1e-6)

    def sent(self, index: int, now: float) -> None:
        on_frame_sent(self.loss, self.slots, index, now)

    def answered(self, index: int, now: float) -> None:
        on_result(self.loss, self.path, self.slots, index, now)

    def due(self, now: float) -> list[int]:
        count = on_loss_detection_timeout(self.engine, now)
        contributions: Any = self.engine.contributions
        return list(contributions["slot"][:count].tolist())

    def probe(self) -> list[int]:
        """Return what is due when the timer ends."""
        return self.due(self.timer)

    @property
    def timer(self) -> float:
        """When something may have to be sent again."""
        set_loss_detection_timer(self.loss, self.path, self.slots)
        return float(self.loss["timer_at"])

    def no_queue(self) -> None:
        """Set the reordering window to that of the path alone."""
        self.path["result_interval"] = 0.0


def test_a_frame_is_lost_when_a_later_one_was_answered_and_a_margin_has_passed() -> None:
    slots = Slots(10)
    for index in (0, 1, 3, 4):
        slots.answered(index, ROUND_S)
    slots.no_queue()
    assert slots.timer == pytest.approx(1.25 * ROUND_S, rel=0.01)
    assert slots.due(1.2 * ROUND_S) == []
    assert slots.due(1.3 * ROUND_S) == [2], "and not 5 to 9: nothing that was sent after them has an answer"


def test_the_margin_is_the_queues_length_but_at_most_the_round_again() -> None:
    """After a loss the ranks do not send in the same order: a frame may have to wait for the others' last."""
    for gap_s, rounds in ((ROUND_S / 16, 1.5), (ROUND_S / 10, 1.8), (ROUND_S, 2.0)):
        slots = Slots(9)
        slots.answered(8, ROUND_S)
        slots.path["result_interval"] = gap_s
        assert slots.timer == pytest.approx(rounds * ROUND_S, rel=0.01)


def test_a_frame_is_lost_by_order_and_not_by_time() -> None:
    """The ranks are late, by any time: what comes then comes in order, and nothing is sent again but probes."""
    slots = Slots(10, opening=True)
    assert slots.due(0.1) == [0]
    for index in range(10):
        slots.answered(index, 1.0 + index * 1e-4)
        assert slots.due(1.0 + index * 1e-4) == []


def test_while_a_rank_is_late_each_probe_timeout_sends_one_frame() -> None:
    slots = Slots(64, opening=True)
    for _ in range(6):  # after 10, 20, 40, ... ms more
        assert slots.timer < 1.0 and slots.probe() == [0]
    assert slots.timer >= 1.0 and slots.probe() == [0]


@pytest.mark.parametrize("lost", ["contribution", "result"])
def test_a_loss_in_slot_0_of_a_refused_collective_is_repaired_by_one_probe(lost: str) -> None:
    """A rank that refuses opens slot 0 alone: no other slot is answered, which could show that its frame is lost."""
    switch = ReferenceSwitch(DEFAULT, 64)
    switch.add_job(1, 7, 3, 0, 64)
    ranks = []
    for rank in range(3):
        lease = Lease(1, "test", 7, rank, 3, 64, DEFAULT.columns, DEFAULT.block_words)
        source: Blocks = Blocks()
        call = Call(0, Kind.REFUSED, detail=Reason.NOT_FINITE)
        if rank != 1:
            tensor = np.ones(64 * DEFAULT.frame_words, np.int32)
            source = Int32(tensor).bind(3, DEFAULT.block_words, True)
            call = Call(0, Kind.ALL_REDUCE, CodecId.INT32, 0, len(tensor))
        ranks.append(Collective(Records(lease, source.n_blocks, window=64), source, call, 60.0))

    def carry(sent: list[tuple[int, bytes]], drop: str = "") -> None:
        """To the switch and back, until no rank has an answer to give."""
        for rank, frame in sent:
            is_slot_0 = rank == 0 and frame[6:8] == b"\0\0"
            for to, answer in () if drop == "contribution" and is_slot_0 else switch.process(rank, frame):
                if not (drop == "result" and to == 0 and answer[6:8] == b"\0\0"):
                    sent += [(to, more) for more in ranks[to].receive(answer, now)]

    now = 0.0
    carry([(rank, frame) for rank, collective in enumerate(ranks) for frame in collective.start(now)], lost)
    while not all(collective.done for collective in ranks):
        now = min(collective.next_timer for collective in ranks if collective.next_timer is not None)
        carry([(rank, frame) for rank, collective in enumerate(ranks) for frame in collective.on_timer(now)])
    assert all(collective.refusals == {1: Reason.NOT_FINITE} for collective in ranks)
    assert ranks[0].stats.retransmissions == 1
    assert sum(collective.stats.retransmissions for collective in ranks) <= 5


def test_consecutive_probe_timeouts_send_two_frames_each() -> None:
    """A loss and a switch that stands still look alike, and each frame is probed in the end."""
    slots = Slots(7)
    slots.answered(0, ROUND_S)
    probes = [slots.probe() for _ in range(5)]
    assert probes == [[6], [5, 4], [3, 2], [1, 6], [5, 4]]


def test_a_result_ends_the_count_of_probe_timeouts() -> None:
    slots = Slots(12)
    probes = []
    for index, timeouts in enumerate((2, 3, 1, 2)):
        slots.answered(index, 1.0 + index)
        probes += [len(slots.probe()) for _ in range(timeouts)]
    assert probes == [1, 2, 1, 2, 2, 1, 1, 2]


def test_the_frame_sent_last_is_the_probe_and_shows_which_others_are_lost() -> None:
    slots = Slots(6)
    slots.answered(0, ROUND_S)
    timer = slots.timer
    assert slots.due(timer) == [5]
    slots.answered(5, timer + ROUND_S)
    timer = slots.timer
    assert slots.due(timer + 0.0001) == [1, 2, 3, 4]


def test_a_frame_that_the_switch_acknowledged_is_probed_half_as_often() -> None:
    slots = Slots(3)
    slots.slots["seen"][0] = 1  # a PENDING said so
    slots.answered(2, ROUND_S)
    slots.no_queue()
    assert slots.due(1.3 * ROUND_S) == [1]
    assert slots.due(2.4 * ROUND_S) == []
    assert slots.due(2.6 * ROUND_S) == [0]


def slots_lost_ambiguously(count: int) -> Slots:
    """Slots 2 and on, overtaken by nothing but slot 0's frame, which was sent again."""
    slots = Slots(count)
    slots.answered(1, ROUND_S)
    slots.no_queue()
    assert slots.due(1.3 * ROUND_S) == [0]
    slots.answered(0, 1.31 * ROUND_S)
    return slots


def test_after_an_ambiguous_answer_only_the_last_frame_is_probed() -> None:
    """The answer to the repeated one may be to what was sent first: then the others are on their way."""
    slots = slots_lost_ambiguously(10)
    slots.round_trip.table[0] = ROUND_S, ROUND_S / 5, ROUND_S, 0.0, 0.0
    assert slots.round_trip.timeout_s == pytest.approx(1.8 * ROUND_S)
    assert slots.timer == pytest.approx(1.8 * ROUND_S, rel=0.01)
    assert slots.due(1.7 * ROUND_S) == []
    assert slots.due(1.81 * ROUND_S) == [9]
    assert slots.due(3.5 * ROUND_S) == []
    assert slots.due(3.62 * ROUND_S) == [9]
    slots.answered(9, 3.7 * ROUND_S)
    assert slots.due(4.7 * ROUND_S) == list(range(2, 9)), "its place is where it was: it overtook the others"


def test_few_frames_are_retransmitted_while_another_rank_stalls() -> None:
    slots = slots_lost_ambiguously(64)
    repeated, timer = [], 0.0
    while timer < 3.0:
        found = slots.timer
        assert found > timer
        timer = found
        repeated += slots.due(timer)
        for index in repeated:
            slots.slots["seen"][index] = 1  # a PENDING said so
    assert 5 < len(repeated) < 40


def test_the_probe_timeout_is_bounded_after_5000_retransmissions() -> None:
    slots = Slots(2)
    slots.slots["retransmits"][0] = 5000
    slots.answered(1, ROUND_S)
    slots.loss["pto_at"] = math.inf
    assert slots.due(0.99 * MAX_PTO_S) == []
    assert slots.due(1.01 * MAX_PTO_S) == [0]


def test_retransmitted_frames_are_lost_by_their_own_order() -> None:
    slots = Slots(3)
    slots.answered(2, ROUND_S)
    slots.no_queue()
    assert slots.due(1.3 * ROUND_S) == [0, 1]
    slots.answered(1, 2.3 * ROUND_S)
    slots.no_queue()
    assert slots.due(2.4 * ROUND_S) == []
    assert slots.due(2.6 * ROUND_S) == [0]


def test_probe_timeouts_back_off_after_the_first_ones() -> None:
    slots = Slots(2, sent=1)
    times, now = [], 0.0
    for _ in range(4):
        slots.sent(1, now)
        slots.slots["retransmits"][1] = 0
        slots.answered(1, now + ROUND_S)
        slots.no_queue()
        timer = slots.timer
        times.append((timer - now) / ROUND_S)
        now = timer
        slots.due(now)
    assert times == pytest.approx([1.25, 1.25, 1.25, 2.5], rel=0.05)


# ----- over a network

N, SLOTS, ELEMENTS = 4, 64, 20_000
"""80 KB on each of 4 ranks."""

LAN = NetworkConditions(delay_s=0.0005, jitter=0.2, frame_s=20e-6)
"""Frames queue at the ranks and at the switch, and rarely overtake each other."""
WAN = NetworkConditions(delay_s=0.005, jitter=0.2, frame_s=20e-6)
REORDERING = NetworkConditions(delay_s=0.002)
"""Every frame takes a time of its own: most are overtaken."""

DELAY = NetworkConditions(delay_s=0.002, jitter=0.0)
"""Three round trips without loss, so 1.5 times is not to be had: one more is already 1.33."""


def sums_over(
    conditions: NetworkConditions, tensors: list[np.ndarray], seed: int, collectives: int, *, dense: bool = False
) -> tuple[World, int]:
    """Sum the tensors of N ranks so often; return the network, and the number of frames that were sent again."""
    switch, elements = ReferenceSwitch(DEFAULT, SLOTS), len(tensors[0])
    switch.add_job(1, 7, N, 0, SLOTS)
    calls = [Call(number, Kind.ALL_REDUCE, CodecId.INT32, 0, elements) for number in range(collectives)]
    members = [
        Member(
            Lease(1, "test", 7, rank, N, SLOTS, DEFAULT.columns, DEFAULT.block_words),
            [(Int32(tensor).bind(N, DEFAULT.block_words, dense), call) for call in calls],
            [0] * SLOTS,
        )
        for rank, tensor in enumerate(tensors)
    ]
    network = World(RootSwitches(switch), members, conditions, seed)
    for results in network.run(2_000_000):
        assert all(np.array_equal(total, sum(tensors)) for (total,) in results)
    return network, sum(member.stats.retransmissions for member in members)


@pytest.mark.fault(
    "the switch stalls for 60 ms repeatedly at 100 Mbit/s; no loss: each rank sends 5 probes at most each time"
)
@pytest.mark.parametrize("density", [0.5, 0.2, 0.1])
def test_few_frames_are_retransmitted_while_the_switch_is_stopped(density: float) -> None:
    """Frames that are only late are not sent again. A probe is sent after 5, 10 and 20 ms without a RESULT: 1, 2, 2."""
    blocks, stall_after = 8192, 600
    tensors = []
    for rank in range(N):  # of 1 MB; each has other blocks that are not zero
        held = np.random.default_rng((1, rank)).permutation(blocks) < density * blocks
        tensors.append(np.repeat((rank + 1) * held, DEFAULT.block_words).astype(np.int32))
    conditions = NetworkConditions(
        delay_s=40e-6, jitter=0.0, frame_s=1e-6, bits_per_s=1e8, stall_after=stall_after, stall_s=0.06
    )
    network, again = sums_over(conditions, tensors, 1, 1)
    assert (stalls := len(network.log) // stall_after) > 2 and again <= 5 * N * stalls


@functools.cache
def train(conditions: NetworkConditions, drop: float, seed: int = 1, collectives: int = 9) -> tuple[float, float]:
    """(virtual seconds a collective, share of the frames that were sent again)"""
    lossy = NetworkConditions(drop, 0.0, 0.0, conditions.delay_s, conditions.jitter, 0.0, conditions.frame_s)
    network, again = sums_over(lossy, [np.arange(ELEMENTS, dtype=np.int32)] * N, seed, collectives, dense=True)
    return (network.now - network.first_end) / (collectives - 1), again / len(network.log)


def on_average(conditions: NetworkConditions, drop: float) -> tuple[float, float]:
    """Return what `train` returns, on average where few frames are lost: which these are makes a large difference."""
    seeds = (1, 2, 3) if drop < 0.1 else (1,)
    seconds, sent_again = np.mean([train(conditions, drop, seed) for seed in seeds], axis=0)
    return float(seconds), float(sent_again)


@pytest.mark.fault(
    "loss of 1, 5 and 10 % each way, several network conditions: an all-reduce takes at most 1.5, 4 and 10 "
    "times as long as without"
)
@pytest.mark.parametrize(
    ("conditions", "bar"),
    [(LAN, 1.5), (WAN, 1.5), (REORDERING, 1.5), (DELAY, 2.0)],
    ids=["lan", "wan", "reordering", "pure delay"],
)
@pytest.mark.slow
def test_loss_prolongs_training_at_most_by(conditions: NetworkConditions, bar: float) -> None:
    """`bar`: multiple of the time without loss, by 1 % each way."""
    for drop, most in ((0.01, bar), (0.1, 10.0)):
        assert on_average(conditions, drop)[0] <= most * train(conditions, 0.0)[0]


@pytest.mark.slow
def test_without_loss_or_reordering_nothing_is_retransmitted() -> None:
    assert train(NetworkConditions(delay_s=0.0005, jitter=0.0, frame_s=20e-6), 0.0)[1] == 0.0
    assert train(LAN, 0.0)[1] < 0.03


@pytest.mark.slow
def test_losses_are_repaired_with_few_spurious_retransmissions() -> None:
    """Each loss on the way up is noticed by every rank, but not whose frame it was."""
    assert on_average(LAN, 0.01)[1] < 0.085
    assert on_average(WAN, 0.01)[1] < 0.085

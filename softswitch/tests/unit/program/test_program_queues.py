"""Egress queues: rates, depths, priorities, and tail drop."""

from __future__ import annotations

import time
from typing import Any

import pytest

from conformance.case import PROGRAMS
from p4reduce_switch.program import ExecutionError, Program, QueueSetting, QueueSettings, TargetOptions
from p4reduce_switch.program.queues import EgressQueues

MS = 1_000_000
QUEUES = (PROGRAMS / "timed" / "queues.json").read_bytes()
"""Sends each packet to the port of its first byte, with the priority of its second, and writes what the queue tells."""


def drained(queues: EgressQueues[str], now_ns: int) -> list[tuple[int, int, str]]:
    found = []
    while (packet := queues.pop(now_ns)) is not None:
        found.append(packet)
    return found


def test_without_a_rate_packets_leave_in_the_order_in_which_they_came() -> None:
    queues: EgressQueues[str] = EgressQueues()
    for number, port in enumerate((2, 1, 2, 3)):
        assert queues.push(port, 0, f"packet {number}", now_ns=5)
    assert queues.depth(2, 0) == 2
    assert queues.next_ns() == 5
    assert drained(queues, 5) == [(2, 0, "packet 0"), (1, 0, "packet 1"), (2, 0, "packet 2"), (3, 0, "packet 3")]
    assert queues.next_ns() is None


def test_a_rate_spaces_packets_and_does_not_save_up_for_later() -> None:
    queues: EgressQueues[str] = EgressQueues(QueueSettings(rates=(QueueSetting(100),)))
    for name in "abc":
        queues.push(1, 0, name, now_ns=1000 * MS)
    assert queues.next_ns() == 1010 * MS, "the first packet of a queue waits too"
    assert drained(queues, 1010 * MS - 1) == []
    assert drained(queues, 1010 * MS) == [(1, 0, "a")]
    assert drained(queues, 1030 * MS) == [(1, 0, "b"), (1, 0, "c")]
    for name in "de":  # after a pause of 1 s one packet is due at once, not 100
        queues.push(1, 0, name, now_ns=2000 * MS)
    assert drained(queues, 2000 * MS) == [(1, 0, "d")]
    assert queues.next_ns() == 2010 * MS


def test_a_packet_that_finds_its_queue_full_is_dropped_and_takes_no_turn() -> None:
    settings = QueueSettings(rates=(QueueSetting(100),), depths=(QueueSetting(2),))
    queues: EgressQueues[str] = EgressQueues(settings)
    taken = [queues.push(1, 0, name, now_ns=0) for name in "abcd"]
    assert taken == [True, True, False, False]
    assert queues.dropped == 2
    assert drained(queues, 20 * MS) == [(1, 0, "a"), (1, 0, "b")]
    queues.push(1, 0, "e", now_ns=20 * MS)
    assert queues.next_ns() == 30 * MS


def test_the_highest_priority_goes_first_until_its_rate_is_used_up() -> None:
    settings = QueueSettings(priorities=3, rates=(QueueSetting(100, 1, 2),))
    queues: EgressQueues[str] = EgressQueues(settings)
    for priority, name in ((0, "low"), (2, "high 1"), (2, "high 2"), (1, "middle")):
        queues.push(1, priority, name, now_ns=0)
    assert drained(queues, 10 * MS) == [(1, 2, "high 1"), (1, 1, "middle"), (1, 0, "low")]
    assert drained(queues, 20 * MS) == [(1, 2, "high 2")]


@pytest.mark.parametrize(("port", "priority", "interval_ms"), [(1, 0, 10), (2, 0, 20), (2, 1, 50), (3, 1, 10)])
def test_a_later_setting_of_fewer_queues_replaces_one_of_more(port: int, priority: int, interval_ms: int) -> None:
    rates = (QueueSetting(100), QueueSetting(50, 2), QueueSetting(20, 2, 1))
    queues: EgressQueues[str] = EgressQueues(QueueSettings(priorities=2, rates=rates))
    queues.push(port, priority, "a", now_ns=0)
    assert queues.next_ns() == interval_ms * MS


def test_queues_of_a_blocked_port_wait_and_the_others_do_not() -> None:
    queues: EgressQueues[str] = EgressQueues()
    queues.push(1, 0, "waits", now_ns=0)
    queues.push(2, 0, "goes", now_ns=0)
    queues.blocked.add(1)
    assert drained(queues, 0) == [(2, 0, "goes")]
    assert queues.next_ns() is None
    queues.blocked.discard(1)
    assert drained(queues, 0) == [(1, 0, "waits")]


def due(queues: EgressQueues[int], now_ns: int = 0) -> list[tuple[int, int]]:
    """Return each packet and when it leaves, in ms after `now_ns`."""
    found = []
    while (at_ns := queues.next_ns()) is not None:
        packet = queues.pop(at_ns)
        assert packet is not None
        found.append((packet[2], (at_ns - now_ns) // MS))
    return found


# What follows was compared with the same calls of simple_switch's own queues (bm_sim/queueing.h of BMv2 1.15.5).


@pytest.mark.parametrize(
    ("changed", "later"), [(QueueSetting(100, 1), [210, 220, 230]), (QueueSetting(0), [200, 200, 200])]
)
def test_a_rate_that_changes_is_for_the_packets_after_those_that_wait(changed: QueueSetting, later: list[int]) -> None:
    queues: EgressQueues[int] = EgressQueues(QueueSettings(priorities=2))
    queues.set_rate(QueueSetting(20), now_ns=0)
    for number in range(4):
        queues.push(1, 0, number, now_ns=0)
    queues.set_rate(changed, now_ns=0)
    for number in range(4, 7):
        queues.push(1, 0, number, now_ns=0)
    assert due(queues) == [*enumerate([50, 100, 150, 200]), *enumerate(later, 4)]


@pytest.mark.parametrize(("rate", "first_ms"), [(QueueSetting(10, 1), 0), (QueueSetting(10), 100)])
def test_a_port_whose_rate_is_set_has_its_queues_from_then_on(rate: QueueSetting, first_ms: int) -> None:
    queues: EgressQueues[int] = EgressQueues(QueueSettings(priorities=2))
    queues.set_rate(rate, now_ns=0)
    for number in range(3):
        queues.push(1, 0, number, now_ns=300 * MS)
    assert due(queues, 300 * MS) == [(number, first_ms + 100 * number) for number in range(3)]


def test_a_rate_of_one_priority_leaves_the_others_as_they_are() -> None:
    queues: EgressQueues[int] = EgressQueues(QueueSettings(priorities=2))
    queues.set_rate(QueueSetting(20), now_ns=0)
    queues.set_rate(QueueSetting(100, 1, 1), now_ns=0)
    for number in range(3):
        for port, priority, first in ((1, 0, 0), (1, 1, 10), (2, 1, 20)):
            queues.push(port, priority, first + number, now_ns=0)
    assert due(queues) == [(10, 10), (11, 20), (12, 30), (20, 50), (0, 50), (21, 100), (1, 100), (22, 150), (2, 150)]


def test_a_rate_of_all_queues_replaces_that_of_one() -> None:
    queues: EgressQueues[int] = EgressQueues(QueueSettings(priorities=2))
    queues.set_rate(QueueSetting(100, 1, 1), now_ns=0)
    queues.set_rate(QueueSetting(20), now_ns=0)
    for number in range(3):
        queues.push(1, 1, number, now_ns=0)
    assert due(queues) == [(0, 50), (1, 100), (2, 150)]


def test_a_depth_below_what_waits_drops_no_packet_that_waits() -> None:
    queues: EgressQueues[int] = EgressQueues(QueueSettings(priorities=2))
    taken = [queues.push(1, 0, number, now_ns=0) for number in range(4)]
    queues.set_depth(QueueSetting(2, 1), now_ns=0)
    taken.append(queues.push(1, 0, 4, now_ns=0))
    for _ in range(2):
        queues.pop(0)
    taken.append(queues.push(1, 0, 5, now_ns=0))
    queues.pop(0)
    taken += [queues.push(1, 0, number, now_ns=0) for number in (6, 7)]
    queues.set_depth(QueueSetting(0), now_ns=0)
    taken += [queues.push(port, 0, 8, now_ns=0) for port in (2, 1)]
    queues.set_depth(QueueSetting(1, 3, 1), now_ns=0)
    taken += [queues.push(3, priority, 9, now_ns=0) for priority in (1, 0)]
    assert taken == [True, True, True, True, False, False, True, False, False, False, True, False]
    assert queues.drops() == {(1, 0): 4, (2, 0): 1, (3, 0): 1}


def test_packets_that_are_removed_delay_none_after_them() -> None:
    queues: EgressQueues[int] = EgressQueues(QueueSettings(rates=(QueueSetting(20),)))
    for number in range(4):
        queues.push(1, 0, number, now_ns=0)
    queues.clear(now_ns=60 * MS)
    queues.push(1, 0, 4, now_ns=60 * MS)
    assert due(queues) == [(4, 110)]


class Clock:
    """The monotonic clock of a test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ns = 1000 * MS
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.ns)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def packet(port: int, priority: int = 0) -> bytes:
    return bytes((port, priority)) + bytes(22)


def queued(**settings: Any) -> Program:
    return Program(QUEUES, queues=EgressQueues(QueueSettings(**settings)))


def told(frame: bytes) -> dict[str, int]:
    """Return the queueing metadata of this packet; times in us."""
    names = {"enqueued": (2, 6), "enqueue_depth": (6, 10), "delay": (10, 14), "dequeue_depth": (14, 18)}
    return {name: int.from_bytes(frame[start:end], "big") for name, (start, end) in names.items()}


def test_the_metadata_of_queues_is_what_simple_switch_fills_in(clock: Clock) -> None:
    program = queued(rates=(QueueSetting(100),), depths=(QueueSetting(3),))
    for _ in range(4):  # the fourth finds the queue full
        clock.ns += 1 * MS
        assert program.process(1, packet(2)) == []
    found = []
    for _ in range(60):
        clock.ns += 1 * MS
        while (outputs := program.depart()) is not None:
            found += [(port, clock.ns // MS - 1000, told(frame)) for port, frame in outputs]
    assert found == [
        (2, 11, {"enqueued": 1000, "enqueue_depth": 0, "delay": 10_000, "dequeue_depth": 2}),
        (2, 21, {"enqueued": 2000, "enqueue_depth": 1, "delay": 19_000, "dequeue_depth": 1}),
        (2, 31, {"enqueued": 3000, "enqueue_depth": 2, "delay": 28_000, "dequeue_depth": 0}),
    ]


def test_priorities_are_queues_of_their_own(clock: Clock) -> None:
    program = queued(priorities=2)
    for priority in (0, 0, 1):
        program.process(1, packet(2, priority))
    left = [program.depart() for _ in range(3)]
    assert [(frames[0][1][1], told(frames[0][1])["enqueue_depth"]) for frames in left if frames] == [
        (1, 0),
        (0, 0),
        (0, 1),
    ]
    with pytest.raises(ExecutionError, match="priority 2.*--priority-queues"):
        program.process(1, packet(2, 2))


def test_a_program_that_looks_at_no_queue_has_none_unless_asked_for(clock: Clock) -> None:
    source = (PROGRAMS / "egress_rewrite.json").read_bytes()
    assert Program(source).queues is None
    asked = Program(source, TargetOptions(queues=True), EgressQueues(QueueSettings(rates=(QueueSetting(10),))))
    frame = bytes(64)
    expected = Program(source).process(1, frame)
    assert asked.process(1, frame) == []
    assert asked.depart() is None
    clock.ns += 100 * MS
    assert asked.depart() == expected


@pytest.mark.parametrize("name", ["clone_i2e", "clone_e2e", "recirculate", "resubmit", "copies"])
def test_packets_pass_again_through_queues_as_without_them(name: str, clock: Clock) -> None:
    source = (PROGRAMS / f"{name}.json").read_bytes()
    plain, queued = Program(source), Program(source, TargetOptions(queues=True))
    for first in range(8):
        frame = bytes((first, *range(63)))
        expected = plain.process(1, frame)
        assert queued.process(1, frame) == []
        found = []
        while (outputs := queued.depart()) is not None:
            found += outputs
        assert sorted(found) == sorted(expected)

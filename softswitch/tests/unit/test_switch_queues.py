"""The switch serves egress queues: when packets are due, and as their interfaces take them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence

import pytest

from conformance.case import PROGRAMS
from p4reduce_runtime.records import zeros
from p4reduce_switch.datapath.ethernet import Interface
from p4reduce_switch.ports.ethernet import OUTPUT_FRAMES, EthernetPorts
from p4reduce_switch.program import Program, QueueSetting, QueueSettings
from p4reduce_switch.program.queues import EgressQueues
from p4reduce_switch.switch import Switch
from rigs.limits import LIMIT_S
from rigs.p4rt import MemoryPorts

QUEUES = (PROGRAMS / "timed" / "queues.json").read_bytes()


class NarrowPorts(EthernetPorts):
    """Ports 2 and 3, without sockets; port 2 has room for `room` frames, where frames are to wait for room."""

    def __init__(self, room: int) -> None:
        super().__init__({})
        self.room = room
        self._native = dict(zip((2, 3), zeros(Interface, 2), strict=True))
        self.sent: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        self.watched: set[int] = set()
        self.woken = True
        self._loop = self  # type: ignore[assignment]
        self._waits = True

    def watch_for_room(self, port: int, watch: bool) -> None:
        (self.watched.add if watch else self.watched.discard)(port)

    def has_woken(self, port: int) -> bool:
        return self.woken

    def _transmit(self, frames: Sequence[tuple[int, bytes]]) -> bool:
        for port, frame in frames:
            if port == 2 and self._waits:
                if self.room == 0:
                    return False
                self.room -= 1
            self.sent.put((port, frame))
        return True


def sent(ports: NarrowPorts | MemoryPorts) -> list[bytes]:
    found = []
    while not ports.sent.empty():
        found.append(ports.sent.get()[1])
    return found


def test_frames_wait_for_their_interface_in_order() -> None:
    ports = NarrowPorts(1)
    for name in (b"1", b"2", b"3"):
        assert ports.send(2, name)
    assert ports.send(3, b"another port") and not ports.send(4, b"no port")
    assert sent(ports) == [b"1", b"another port"]
    assert ports.watched == {2}
    ports.room = 1
    ports.woken = False
    ports.flush()
    assert sent(ports) == [], "as in BMv2, frames wait until the socket reports room or an arrival"
    ports.woken = True
    ports.flush()
    ports.send(2, b"4")
    assert sent(ports) == [b"2"]
    ports.room = 9
    ports.flush()
    assert sent(ports) == [b"3", b"4"]
    assert ports.watched == set()
    ports.send(2, b"5")
    assert sent(ports) == [b"5"]


def test_a_port_whose_output_buffer_is_full_has_its_queues_blocked() -> None:
    switch, ports = Switch(), NarrowPorts(10)
    switch.add_ports(ports)
    program = Program(QUEUES)
    switch.install(program)
    assert program.queues is not None
    for _ in range(300):
        switch.receive(1, bytes((2, 0)) + bytes(22))
    assert len(sent(ports)) == 10
    assert program.queues.depth(2, 0) == 64
    assert program.queues.dropped == 300 - 10 - OUTPUT_FRAMES - 64
    switch.receive(1, bytes((3, 0)) + bytes(22))
    assert len(sent(ports)) == 1, "another port is not held up"
    ports.room = 47
    ports.flush()
    switch._depart(program)
    assert program.queues.depth(2, 0) == 64 - 47
    switch.close()


def test_packets_leave_when_they_are_due_though_nothing_else_arrives() -> None:
    switch, ports = Switch(), MemoryPorts()
    switch.add_ports(ports)
    switch.install(Program(QUEUES, queues=EgressQueues(QueueSettings(rates=(QueueSetting(200),)))))
    running = threading.Thread(target=switch.run)
    running.start()
    try:
        for number in range(4):
            frame = bytes((2, 0)) + bytes(22) + bytes((number,))
            switch.packet_out(frame)
        found = [ports.sent.get(timeout=LIMIT_S)[1][-1] for _ in range(4)]
        assert found == [0, 1, 2, 3]
        with pytest.raises(queue.Empty):
            ports.sent.get_nowait()
    finally:
        switch.stop()
        running.join(LIMIT_S)
        switch.close()


def test_a_program_without_queues_leaves_no_frame_waiting() -> None:
    switch, ports = Switch(), NarrowPorts(0)
    switch.add_ports(ports)
    switch.install(Program(QUEUES))
    for _ in range(OUTPUT_FRAMES):
        switch.receive(1, bytes((2, 0)) + bytes(22))
    assert ports.full == ports.watched == {2}
    switch.install(Program((PROGRAMS / "egress_rewrite.json").read_bytes()))
    assert ports.full == ports.watched == set()
    switch.close()


def test_a_switch_that_stops_does_not_serve_its_queues_any_more() -> None:
    """Else a program that recirculates for ever has MAX_DEPARTURES for each frame of a burst that has arrived."""
    switch, ports = Switch(), MemoryPorts()
    switch.add_ports(ports)
    switch.install(Program(QUEUES))
    frame = bytes((2, 0)) + bytes(22)
    switch.receive(1, frame)
    assert len(sent(ports)) == 1
    switch.stop()
    switch.receive(1, frame)
    assert sent(ports) == []
    switch.close()


def test_rates_and_depths_outlive_a_program_and_its_packets_do_not() -> None:
    switch, ports = Switch(queues=QueueSettings(rates=(QueueSetting(1),))), MemoryPorts()
    switch.add_ports(ports)
    switch.install(switch.load(QUEUES))
    switch.queues.set_depth(QueueSetting(2, 2), now_ns=0)
    for _ in range(3):
        switch.receive(1, bytes((2, 0)) + bytes(22))
    assert switch.queues.depth(2, 0) == 2
    switch.install(switch.load((PROGRAMS / "egress_rewrite.json").read_bytes()))
    assert switch.program is not None
    assert switch.program.queues is switch.queues, "a program has queues that looks at none, since they have a rate"
    assert switch.queues.depth(2, 0) == 0
    assert switch.queues.next_ns() is None
    assert [switch.queues.push(2, 0, None, now_ns=0) for _ in range(3)] == [True, True, False]
    switch.close()


def test_a_program_without_queues_leaves_no_packet_of_the_one_before_it() -> None:
    switch, ports = Switch(), MemoryPorts()
    switch.add_ports(ports)
    switch.install(switch.load(QUEUES))
    with switch.lock:
        assert switch.program is not None
        switch.program.process(1, bytes((2, 0)) + bytes(22))
    assert switch.queues.depth(2, 0) == 1
    switch.install(switch.load((PROGRAMS / "egress_rewrite.json").read_bytes()))
    assert switch.program.queues is None
    assert switch.queues.depth(2, 0) == 0
    switch.close()

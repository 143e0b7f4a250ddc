"""The switch between ports and program."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

from p4reduce_switch.program import ExecutionError
from p4reduce_switch.switch import Switch
from rigs.p4rt import MemoryPorts


class Echo:
    """A program that sends each frame back, to the CPU port and to nowhere; port 9 breaks it."""

    on_digest: Any = None
    action_profiles: ClassVar[dict[str, Any]] = {}
    queues = None

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        if port == 9:
            raise ExecutionError("broken")
        self.on_digest("seen", [(port,)])
        return [(port, frame), (510, b"to cpu"), (1, b"second")]


def test_frames_leave_by_the_port_that_the_program_sets() -> None:
    switch, ports = Switch(), MemoryPorts()
    switch.add_ports(ports)
    packets: list[bytes] = []
    digests: list[object] = []
    switch.on_packet_in = packets.append
    switch.on_digest = lambda name, rows: digests.append((name, rows))
    switch.receive(3, b"too early")
    switch.install(Echo())  # type: ignore[arg-type]
    switch.receive(3, b"frame")
    switch.receive(9, b"frame")
    assert [ports.sent.get(timeout=1) for _ in range(2)] == [(3, b"frame"), (1, b"second")]
    assert ports.sent.empty()
    assert packets == [b"to cpu"]
    assert digests == [("seen", [(3,)])]
    assert (switch.frames_without_program, switch.frames_failed) == (1, 1)
    switch.close()


def test_frames_to_no_port_are_counted() -> None:
    switch = Switch()
    switch.install(Echo())  # type: ignore[arg-type]
    switch.packet_out(b"x")
    assert switch.frames_to_no_port == 1, "port 1; 510 is the controller, who is not there"
    switch.close()


def test_ports_of_multicast_groups_are_in_use() -> None:
    switch = Switch()
    assert switch.ports_in_use() == frozenset()
    program: Any = Echo()
    groups = {257: [SimpleNamespace(port=3), SimpleNamespace(port=7)], 1: [SimpleNamespace(port=9)]}
    program.replication = SimpleNamespace(multicast_groups=groups)
    switch.install(program)
    assert switch.ports_in_use() == {3, 7, 9}
    switch.close()

"""The switch: one program, its ports, and the frames between them and the controller."""

from __future__ import annotations

import logging
import os
import selectors
import threading
from collections.abc import Callable

from p4reduce_contracts.logs import Sparing
from p4reduce_switch.ports import Ports
from p4reduce_switch.program import DigestHandler, ExecutionError, Executor

_log = logging.getLogger(__name__)

DEFAULT_CPU_PORT = 510


class Switch:
    """Runs frames through the program, one at a time, under one lock.

    The P4Runtime server holds `lock` while it changes tables, so a frame sees each write whole or not at all.
    """

    def __init__(self, device_id: int = 1, cpu_port: int = DEFAULT_CPU_PORT) -> None:
        self.device_id = device_id
        self.cpu_port = cpu_port
        self.lock = threading.RLock()
        self.program: Executor | None = None
        self.ports: list[Ports] = []
        self.on_packet_in: Callable[[bytes], None] | None = None
        """Takes each frame that leaves by the CPU port, packet-in header first."""
        self.on_digest: DigestHandler | None = None
        self.frames_without_program = 0
        self.frames_to_no_port = 0
        self.frames_failed = 0
        self.packet_ins = 0
        self.packet_outs = 0
        self._sparing = Sparing(_log)
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = os.pipe()
        self._selector.register(self._wake_reader, selectors.EVENT_READ, None)
        self._stopping = threading.Event()

    def add_ports(self, ports: Ports) -> None:
        """Serve these ports too; `close` closes them."""
        self.ports.append(ports)
        for fileno in ports.filenos():
            self._selector.register(fileno, selectors.EVENT_READ, ports)

    def ports_in_use(self) -> frozenset[int]:
        """The ports that the program's multicast groups name."""
        with self.lock:
            groups = {} if self.program is None else self.program.replication.multicast_groups
            return frozenset(replica.port for replicas in groups.values() for replica in replicas)

    def install(self, program: Executor) -> None:
        """Run this program from the next frame on; its tables and registers start fresh."""
        with self.lock:
            program.on_digest = self._digest
            self.program = program

    def receive(self, port: int, frame: bytes) -> None:
        """One frame that arrived at `port`; what comes out is sent before this returns."""
        with self.lock:
            if self.program is None:
                self.frames_without_program += 1
                return
            try:
                outputs = self.program.process(port, frame)
            except ExecutionError as error:  # such as a program that resubmits a frame for ever
                self.frames_failed += 1
                self._sparing.event(logging.WARNING, "frame failed", port=port, cause=str(error))
                return
        for out_port, out_frame in outputs:
            self._send(out_port, out_frame)

    def packet_out(self, frame: bytes) -> None:
        """One frame from the controller, packet-out header first."""
        self.packet_outs += 1
        self.receive(self.cpu_port, frame)

    def run(self) -> None:
        """Serve the ports until `stop` is called."""
        while not self._stopping.is_set():
            for key, _ in self._selector.select():
                if key.data is not None:
                    key.data.drain(key.fd, self.receive)

    def stop(self) -> None:
        """Make `run` return; callable from any thread or signal handler, more than once."""
        self._stopping.set()
        os.write(self._wake_writer, b"x")

    def close(self) -> None:
        """Close the ports; call after `run` has returned."""
        self._selector.close()
        for ports in self.ports:
            ports.close()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _send(self, port: int, frame: bytes) -> None:
        if port == self.cpu_port:
            self.packet_ins += 1
            if self.on_packet_in is not None:
                self.on_packet_in(frame)
            return
        for ports in self.ports:
            if ports.send(port, frame):
                return
        self.frames_to_no_port += 1
        self._sparing.event(logging.INFO, "frame to no port", str(port), port=port)

    def _digest(self, name: str, values: list[tuple[int, ...]]) -> None:
        if self.on_digest is not None:
            self.on_digest(name, values)

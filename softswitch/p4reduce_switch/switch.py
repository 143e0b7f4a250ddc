"""The switch: one program, its ports, and packet-ins and packet-outs."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import selectors
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from p4reduce_runtime import kernels
from p4reduce_runtime.logs import RateLimitedLog, event
from p4reduce_switch.datapath import BatchProgram, Reason, batch_program
from p4reduce_switch.fair_lock import FairLock, RequestLock
from p4reduce_switch.output import OutputBuffers
from p4reduce_switch.ports import DatapathLoop, Ports
from p4reduce_switch.program import (
    DEFAULT_QUEUES,
    DEFAULT_TARGET,
    Config,
    DigestHandler,
    EgressQueues,
    ExecutionError,
    Program,
    QueueSettings,
    TargetOptions,
)

_log = logging.getLogger(__name__)

DEFAULT_CPU_PORT = 510
MAX_DEPARTURES = 1000
"""Packets that leave the queues before arrivals are looked for again."""


class Switch:
    """Runs frames through the program, under one lock: one at a time, or batches in a native loop (`loop`).

    The P4Runtime server holds `lock` while it changes tables, so each write is atomic for frames.
    """

    def __init__(
        self,
        device_id: int = 1,
        cpu_port: int | None = DEFAULT_CPU_PORT,
        on_log: Callable[[str], None] | None = None,
        target: TargetOptions = DEFAULT_TARGET,
        queues: QueueSettings = DEFAULT_QUEUES,
    ) -> None:
        """`cpu_port` None: there is none. `on_log` receives the messages of the program.

        `target` and `queues` are for the programs that `load` makes.
        """
        self.device_id = device_id
        self.cpu_port = cpu_port
        self.lock = FairLock()
        self.program: Program | None = None
        self.queues: EgressQueues[Any] = EgressQueues(queues)
        """The egress queues of the programs that `load` makes, where their packets pass queues."""
        self._target = target
        self.ports: list[Ports] = []
        self.on_packet_in: Callable[[bytes], None] | None = None
        """Receives each frame sent to the CPU port, packet-in header first."""
        self.on_digest: DigestHandler | None = None
        self._on_log = on_log
        self.frames_without_program = 0
        self.frames_to_no_port = 0
        self.frames_failed = 0
        self.packet_ins = 0
        self.packet_outs = 0
        self._rate_limited_log = RateLimitedLog(_log)
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, None)
        self._stopping = threading.Event()
        self._loop: DatapathLoop | None = None
        self._loop_made = False
        self._request: RequestLock | None = None
        self._installed_us = 0
        self._ports_down: set[int] = set()
        self._output = OutputBuffers(self._selector)

    def add_ports(self, ports: Ports) -> None:
        """Add ports to serve; `close` closes them."""
        self.ports.append(ports)
        for fileno in ports.filenos():
            self._selector.register(fileno, selectors.EVENT_READ, ports)

    def ports_in_use(self) -> frozenset[int]:
        """Return the ports in the program's multicast groups."""
        with self.lock:
            groups = {} if self.program is None else self.program.replication.multicast_groups
            return frozenset(replica.port for replicas in groups.values() for replica in replicas)

    def load(self, config: Config) -> Program:
        """Return the program of a BMv2 JSON, which may compile for seconds. Raises ProgramError."""
        queued = self._target.queues or self.queues.are_set
        return Program(config, replace(self._target, queues=queued), self.queues)

    def install(self, program: Program) -> None:
        """Run this program from the next frame on, with its initial state."""
        self.prepare(batch_program(program) is not None)
        with self.lock:
            program.on_digest, program.on_log = self._digest, self._on_log
            for profile in program.action_profiles.values():
                for port in self._ports_down:
                    profile.set_port(port, False)
            now_ns = time.monotonic_ns()
            if self.program is not None and self.program.queues is not None:
                self.program.queues.clear(now_ns)
            self.program = program
            self._installed_us = now_ns // 1000
            if program.queues is not None:
                program.queues.blocked = self._output.full
        if program.queues is None and self.queues.are_set:
            event(_log, logging.WARNING, "program without queues", cause="it was loaded before a rate or depth was set")
        for ports in self.ports:
            ports.wait_when_full(program.queues is not None)
        self._output.flush_all()  # the native loop does not: frames that wait for their interface would stay
        self.wake()

    def prepare(self, native: bool = True) -> None:
        """Load the native loop for programs with a native function, if the ports have one; this may compile it."""
        if native and not self._loop_made and len(self.ports) == 1:
            self._loop_made = True
            loop = self.ports[0].datapath_loop(self._wake_reader)
            compiled = kernels.load("p4reduce_switch.datapath.lock_kernels") if loop is not None else None
            if compiled is not None:
                self._loop, self._request = loop, compiled.request
                event(_log, logging.INFO, "native loop ready", device=self.device_id)

    @property
    def wake_descriptor(self) -> int:
        """The write end of a pipe that wakes `run`; for `signal.set_wakeup_fd`."""
        return self._wake_writer

    def wake(self) -> None:
        """Wake `run`."""
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes as well
            os.write(self._wake_writer, b"x")

    def port_changed(self, port: int, up: bool) -> None:
        """Set the link state of a port: group members whose watch port is down are not selected."""
        with self.lock:
            (self._ports_down.discard if up else self._ports_down.add)(port)
            for profile in () if self.program is None else self.program.action_profiles.values():
                profile.set_port(port, up)

    def receive(self, port: int, frame: bytes) -> None:
        """Run one frame that arrived at `port`, and send the results."""
        with self.lock:
            program = self.program
            if program is None:
                self.frames_without_program += 1
                return
            try:
                outputs = program.process(port, frame)
            except ExecutionError as error:  # such as a program that resubmits a frame without end
                self._failed(port, error)
                return
        for out_port, out_frame in outputs:
            self._send(out_port, out_frame)
        if program.queues is not None:
            self._depart(program)

    def _failed(self, port: int | None, error: ExecutionError) -> None:
        self.frames_failed += 1
        self._rate_limited_log.event(logging.WARNING, "frame failed", port=port, cause=str(error))

    def packet_out(self, frame: bytes) -> None:
        """Inject one frame from the controller, packet-out header first; the switch has a CPU port."""
        assert self.cpu_port is not None
        self.packet_outs += 1
        self.receive(self.cpu_port, frame)
        if self.program is not None and self.program.queues is not None:
            self.wake()  # `run` serves the queues

    def run(self) -> None:
        """Process frames until `stop` is called."""
        while not self._stopping.is_set():
            if self._loop is None or not self._run_native(self._loop):
                self._drain_in_python()

    def _drain_in_python(self) -> None:
        program = self.program
        queues = None if program is None else program.queues
        for key, events in self._selector.select() if queues is None else self._select_until_due(queues):
            self._output.flush(key.fd)
            if not events & selectors.EVENT_READ:
                continue
            if key.data is not None:
                key.data.drain(key.fd, self.receive)
            else:
                self._woken()
        if program is not None and queues is not None:
            self._depart(program)

    def _select_until_due(self, queues: EgressQueues[Any]) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events until a packet is due in the queues, to the microsecond: epoll waits for milliseconds."""
        with self.lock:
            due_ns = queues.next_ns()
        if due_ns is not None:
            wait_s = max(0, due_ns - time.monotonic_ns()) / 1e9
            select.select([self._selector], [], [], wait_s)  # epoll's own descriptor
            return self._selector.select(0)
        return self._selector.select()

    def _depart(self, program: Program) -> None:
        """Send what is due in the queues; of a program that recirculates for ever not all of it."""
        for _ in range(MAX_DEPARTURES):
            with self.lock:
                try:
                    outputs = program.depart() if program is self.program else None
                except ExecutionError as error:
                    self._failed(None, error)
                    continue
            if outputs is None or self._stopping.is_set():
                return
            for out_port, out_frame in outputs:
                self._send(out_port, out_frame)

    def _run_native(self, loop: DatapathLoop) -> bool:
        """Run the native loop once, and handle what it returned for; False if the program has no native function."""
        with self.lock:
            program = batch_program(self.program)
            if program is None:
                self._finish(loop)
                return False
            loop.buffers.bind(program.batch, self._installed_us)
            self.lock.begin_native(self._request)
            try:
                reason = loop.run_once(self.lock.shared)
            finally:
                self.lock.end_native()
            if reason is Reason.EVENT or loop.buffers.clear_event():  # before another thread may run a frame
                self._collect(program, loop)
            elif reason is Reason.BUFFER_FULL:
                loop.buffers.enlarge(program.batch)
        if reason is Reason.WOKEN:
            self._woken()
        elif reason is Reason.OTHER_PORT:
            self._send(*loop.buffers.result())
        elif reason is Reason.UNKNOWN_PEER:
            loop.receive_pending(self.receive)
        return True

    def _collect(self, program: BatchProgram, loop: DatapathLoop) -> None:
        try:
            program.collect()
        except ExecutionError as error:
            self._failed(loop.buffers.last_port(), error)

    def _finish(self, loop: DatapathLoop) -> None:
        """Finish in Python what the native loop has begun, for a new program without a native function."""
        while (result := loop.buffers.next_result()) is not None:
            self._send(*result)
        while (frame := loop.buffers.next_frame()) is not None:
            self.receive(*frame)
        loop.receive_pending(self.receive)

    def stop(self) -> None:
        """Make `run` return; callable from any thread or signal handler, more than once."""
        self._stopping.set()
        self.wake()

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_reader, 4096)

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
            if self._output.send(ports, port, frame):
                return
        self.frames_to_no_port += 1
        self._rate_limited_log.event(logging.INFO, "frame to no port", str(port), port=port)

    def _digest(self, name: str, values: list[tuple[int, ...]]) -> None:
        if self.on_digest is not None:
            self.on_digest(name, values)

"""The switch: one program, its ports, and packet-ins and packet-outs."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

from p4reduce_runtime.logs import RateLimitedLog, event
from p4reduce_switch.datapath import BatchProgram, Reason, batch_program
from p4reduce_switch.fair_lock import FairLock, RequestLock
from p4reduce_switch.ports import DatapathLoop, Ports, load_loop
from p4reduce_switch.program import (
    Config,
    ExecutionError,
    PacketTrace,
    Program,
    ProgramError,
    QueueSettings,
    TargetOptions,
)
from p4reduce_switch.program.load import DEFAULT_TARGET
from p4reduce_switch.program.queues import DEFAULT_QUEUES, EgressQueues
from p4reduce_switch.program.trace import TraceHandler
from p4reduce_switch.program.traffic import DigestHandler

_log = logging.getLogger(__name__)

DEFAULT_CPU_PORT = 510
MAX_DEPARTURES = 1000
"""Packets that leave the queues before arrivals are looked for again."""


@dataclass(eq=False)
class Watch:
    """The frames to trace: those of a port, None: of any, with all these bytes; `take` receives the traces.

    `take` is called with the switch's lock held.
    """

    take: TraceHandler
    port: int | None = None
    where: tuple[tuple[int, bytes, bytes], ...] = ()
    """(offset, value, mask) of bytes of the frame."""
    left: int | None = None
    """Number of further frames to trace; None: no limit."""
    unfinished: set[int] = field(default_factory=set)
    """Numbers of frames with copies in egress queues."""
    at_end: Callable[[], None] | None = None
    """A function that is called, with the lock held, when there will be no more: the program cannot be traced."""

    def wants(self, port: int, frame: bytes) -> bool:
        """Return whether to trace a frame, and count it."""
        if self.left == 0 or self.port not in (None, port) or not all(_has(frame, *part) for part in self.where):
            return False
        if self.left is not None:
            self.left -= 1
        return True


def _has(frame: bytes, offset: int, value: bytes, mask: bytes) -> bool:
    found = frame[offset : offset + len(value)]
    return len(found) == len(value) and all(a & m == b & m for a, b, m in zip(found, value, mask, strict=True))


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
        self.threads = target.threads
        self.lock = FairLock(self.threads)
        self.program: Program | None = None
        self.queues: EgressQueues[Any] = EgressQueues(queues)
        """The egress queues of the programs that `load` makes, where their packets pass queues."""
        self._target = target
        self.ports: Ports | None = None
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
        self._wake_reader, self._wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            self._stop_reader, self._stop_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            """Ends of the pipe that wakes the helpers; only `stop` writes to it."""
        except OSError:
            os.close(self._wake_reader)
            os.close(self._wake_writer)
            raise
        self._stopping = threading.Event()
        self._helper_error: BaseException | None = None
        self._loop: DatapathLoop | None = None
        self._request: RequestLock | None = None
        self._installed_us = 0
        self._ports_down: set[int] = set()
        self._watches: list[Watch] = []
        self._compiling_traces = threading.Lock()

    @property
    def watches(self) -> int:
        """Number of watches that trace frames."""
        return len(self._watches)

    def watch(self, watch: Watch, most: int | None = None) -> bool:
        """Trace frames from now on, unless `most` are traced for already; return whether they are.

        Compiles traced code at first, which may take seconds. Raises ProgramError.
        """
        while True:
            program = self.program
            self._trace(program)
            with self.lock:
                if most is not None and len(self._watches) >= most:
                    return False
                if program is self.program:
                    self._watches.append(watch)
                    break
        self.wake()
        return True

    def unwatch(self, watch: Watch) -> None:
        """Trace no more frames for this watch; with the last one gone all frames run as before."""
        with self.lock:
            if watch in self._watches:
                self._watches.remove(watch)

    def _trace(self, program: Program | None) -> None:
        """Compile traced code of a program, unless it has it; frames run on meanwhile."""
        with self._compiling_traces:
            if program is not None and not program.traces:
                traced = program.compiled.traced()
                with self.lock:
                    program.trace_with(traced)

    def add_ports(self, ports: Ports) -> None:
        """Serve these ports; `close` closes them."""
        self.ports = ports

    def ports_in_use(self) -> frozenset[int]:
        """Return the ports in the program's multicast groups."""
        with self.lock:
            groups = {} if self.program is None else self.program.replication.multicast_groups
            return frozenset(replica.port for replicas in groups.values() for replica in replicas)

    def load(self, config: Config) -> Program:
        """Return the program of a BMv2 JSON, which may compile for seconds. Raises ProgramError."""
        queued = self._target.queues or self.queues.are_set
        program = Program(config, replace(self._target, queues=queued), self.queues)
        if self.threads > 1 and not (program.batch and program.batch.threads):
            event(_log, logging.WARNING, "program for one thread", cause="its frames depend on each other's order")
        self._trace_if_watched(program)
        return program

    def _trace_if_watched(self, program: Program) -> bool:
        """Compile traced code if there are watches; return whether that is impossible."""
        try:
            if self._watches:
                self._trace(program)
        except ProgramError as error:
            event(_log, logging.WARNING, "program is not traced", cause=str(error))
            return True
        return False

    def install(self, program: Program) -> None:
        """Run this program from the next frame on, with its initial state."""
        untraced = self._trace_if_watched(program)
        with self.lock:
            for watch in self._watches:
                watch.unfinished.clear()
                if untraced and watch.at_end is not None:
                    watch.at_end()
            program.on_digest, program.on_log = self._digest, self._on_log
            for profile in program.action_profiles.values():
                for port in self._ports_down:
                    profile.set_port(port, False)
            now_ns = time.monotonic_ns()
            if self.program is not None and self.program.queues is not None:
                self.program.queues.clear(now_ns)
            self.program = program
            self._installed_us = now_ns // 1000
            if self.ports is not None:
                self.ports.wait_when_full(program.queues is not None)
                if program.queues is not None:
                    program.queues.blocked = self.ports.full
        if program.queues is None and self.queues.are_set:
            event(_log, logging.WARNING, "program without queues", cause="it was loaded before a rate or depth was set")
        self.wake()

    def prepare(self) -> None:
        """Load the native loop of the ports, which may compile it. PortError where it cannot be."""
        if self._loop is None and self.ports is not None:
            self._loop = self.ports.datapath_loop(self._wake_reader)
            kernels = load_loop("p4reduce_switch.datapath.lock_kernels")
            self._request = kernels.request
            if self._loop.helpers:
                assert len(self._loop.helpers) < self.threads, "the lock has a row for each thread"
                for helper in self._loop.helpers:
                    helper.wake_by(self._stop_reader)
                self._set_closed = partial(kernels.set_closed, self.lock.shared)
                self.lock.open_helpers, self.lock.close_helpers = self._share, partial(self._set_closed, 1)

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
        self._receive([(port, frame)])

    def _receive(self, frames: Sequence[tuple[int, bytes]]) -> None:
        """Run (port, frame) that have arrived, and send the results."""
        outputs: list[tuple[int, bytes]] = []
        with self.lock:
            for port, frame in frames:
                if self.program is None:
                    self.frames_without_program += 1
                    continue
                try:
                    outputs += self.program.process(port, frame, *self._takers(port, frame))
                except ExecutionError as error:  # such as a program that resubmits a frame without end
                    self._failed(port, error)
            packet_ins = self._send(outputs)
            program = self.program
        self._punt(packet_ins)
        if program is not None and program.queues is not None:
            self._depart(program)

    def _takers(self, port: int, frame: bytes) -> tuple[TraceHandler, ...]:
        """Return what takes the trace of a frame, with the lock held: none if it is not traced."""
        if not self._watches or self.program is None or not self.program.traces:
            return ()
        self._watches = [watch for watch in self._watches if watch.left != 0 or watch.unfinished]
        watches = [watch for watch in self._watches if watch.wants(port, frame)]

        def take(trace: PacketTrace) -> None:
            for watch in watches:
                (watch.unfinished.add if trace.waiting else watch.unfinished.discard)(trace.number)
                watch.take(trace)

        return (take,) if watches else ()

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
        """Process frames until `stop` is called. Raises what a helper raised."""
        self.prepare()
        assert self._loop is not None, "the switch has ports"
        helpers = [
            threading.Thread(target=self._help, args=(loop, number), daemon=True)
            for number, loop in enumerate(self._loop.helpers, 1)
        ]
        for helper in helpers:
            helper.start()
        try:
            while not self._stopping.is_set():
                self._serve(self._loop)
        finally:
            self.stop()
            for helper in helpers:
                helper.join()
        if self._helper_error is not None:
            raise self._helper_error

    def _native(self) -> BatchProgram | None:
        """Return the program, with the lock held, if native loops are to run its frames."""
        traced = bool(self._watches) and self.program is not None and self.program.traces
        return None if traced or self.ports is None or self.ports.recorder else batch_program(self.program)

    def _share(self) -> None:
        """Let the helpers run frames, with the lock held."""
        assert self._loop is not None
        self._loop.share(self._native(), self._installed_us)
        self._set_closed(0)

    def _help(self, loop: DatapathLoop, number: int) -> None:
        """Run a helper's loop until `stop` is called; if it fails, the switch ends."""
        try:
            while not self._stopping.is_set():
                reason = loop.help_once(self.lock.shared, number)
                with self.lock:
                    packet_ins = self._handle_reason(
                        reason, loop, batch_program(self.program), number
                    )  # traced now or not
                if reason is Reason.FRAMES:
                    self._receive(loop.buffers.frames())
                    self.wake()  # `run` serves the queues
                self._punt(packet_ins)
        except BaseException as error:
            self._helper_error = error
            self.stop()

    def _serve(self, loop: DatapathLoop) -> None:
        """Run the native loop once, and handle what it returned for."""
        assert self.ports is not None
        buffers, recorder = loop.buffers, self.ports.recorder
        with self.lock:
            program, native = self.program, self._native()
            buffers.bind(None if native is None else native.batch, self._installed_us)
            due_ns = None if program is None or program.queues is None else program.queues.next_ns()
            buffers.state["due_us"] = -1 if due_ns is None else -(-due_ns // 1000)
            self.lock.begin_native(self._request)
            try:
                reason = loop.run_once(self.lock.shared)
            finally:
                self.lock.end_native()
            packet_ins = self._handle_reason(reason, loop, native)
            self.ports.flush()
        if reason is Reason.WOKEN:
            self._woken()
        elif reason is Reason.FRAMES:
            frames = buffers.frames()
            if recorder is not None:
                for port, frame in frames:
                    recorder(port, frame)
            one_by_one = program is not None and program.queues is not None  # else they would fill the queues
            for group in [[arrived] for arrived in frames] if one_by_one else [frames]:
                self._receive(group)
        self._punt(packet_ins)
        if program is not None and program.queues is not None:
            self._depart(program)

    def _handle_reason(
        self, reason: Reason, loop: DatapathLoop, native: BatchProgram | None, thread: int = 0
    ) -> list[bytes]:
        """Do what a thread's loop needs, with the lock held since its last frame; return frames for the controller."""
        if native is not None and (reason is Reason.EVENT or loop.buffers.clear_event()):
            try:
                native.collect(thread)
            except ExecutionError as error:
                self._failed(loop.buffers.last_port(), error)
        elif native is not None and reason is Reason.BUFFER_FULL:
            loop.buffers.enlarge(native.batch)
        if reason is Reason.OTHER_PORT:
            return self._send([loop.buffers.result()])
        if reason is Reason.UNKNOWN_PEER:
            loop.admit_pending()
        return []

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
                packet_ins = self._send(outputs)
            self._punt(packet_ins)

    def stop(self) -> None:
        """Make `run` return; callable from any thread or signal handler, more than once."""
        self._stopping.set()
        self.wake()
        with contextlib.suppress(BlockingIOError):
            os.write(self._stop_writer, b"x")

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_reader, 4096)

    def close(self) -> None:
        """Close the ports; call after `run` has returned."""
        if self.ports is not None:
            self.ports.close()
        for descriptor in (self._wake_reader, self._wake_writer, self._stop_reader, self._stop_writer):
            os.close(descriptor)

    def _send(self, outputs: Iterable[tuple[int, bytes]]) -> list[bytes]:
        """Send frames out of their ports, with the lock held; return those for the controller."""
        packet_ins = []
        for port, frame in outputs:
            if port == self.cpu_port:
                packet_ins.append(frame)
            elif self.ports is None or not self.ports.send(port, frame):
                self.frames_to_no_port += 1
                self._rate_limited_log.event(logging.INFO, "frame to no port", str(port), port=port)
        if self.ports is not None:
            self.ports.flush()
        return packet_ins

    def _punt(self, packet_ins: list[bytes]) -> None:
        """Hand frames to the controller, without the lock."""
        for frame in packet_ins:
            self.packet_ins += 1
            if self.on_packet_in is not None:
                self.on_packet_in(frame)

    def _digest(self, name: str, values: list[tuple[int, ...]]) -> None:
        if self.on_digest is not None:
            self.on_digest(name, values)

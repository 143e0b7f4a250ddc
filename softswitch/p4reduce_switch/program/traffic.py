"""The traffic manager of simple_switch, for programs that clone, resubmit, recirculate or use queues.

It connects parser, ingress, egress and deparser. For programs whose packets pass the pipeline once and at once, machine
code does this (`llvm/batch_code.py`).
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass

from p4reduce_switch.program import packet
from p4reduce_switch.program.errors import ExecutionError
from p4reduce_switch.program.ir.features import Features
from p4reduce_switch.program.ir.program import Program
from p4reduce_switch.program.layout import Layout
from p4reduce_switch.program.queues import EgressQueues
from p4reduce_switch.program.state.replication import CloneSession, Replica, Replication
from p4reduce_switch.program.state.stateful import microseconds
from p4reduce_switch.program.steps import Step
from p4reduce_switch.program.trace import CopyLog


class Shape:
    """The layout of a record for Python: of each slot its mask, -1 if signed, and the number of its word, if any."""

    def __init__(self, layout: Layout) -> None:
        self.kinds, self.offsets = layout.kinds, layout.offsets
        self.masks = [-1 if kind.signed else (1 << kind.bits) - 1 for kind in layout.kinds]
        self.words = [
            layout.offsets[slot] // 8 if kind.bytes_ == 8 and not kind.wide else None
            for slot, kind in enumerate(layout.kinds)
        ]
        self.memory = ctypes.c_char * max(8, layout.size)


class Record:
    """A packet: a record in memory and its payload; a new one is all 0."""

    __slots__ = ("_bytes", "_signed", "_unsigned", "log", "memory", "out_port", "payload", "shape")

    def __init__(self, shape: Shape, memory: ctypes.Array[ctypes.c_char] | None = None, payload: bytes = b"") -> None:
        self.shape = shape
        self.memory = shape.memory() if memory is None else memory
        self.payload = payload
        self.out_port = 0
        """The port of a packet in egress, which simple_switch keeps beside the program's egress_port."""
        self.log: CopyLog | None = None
        """Takes its steps; None: it is not traced."""
        self._bytes = memoryview(self.memory).cast("B")
        self._signed, self._unsigned = self._bytes.cast("q"), self._bytes.cast("Q")

    def copy(self) -> Record:
        """Return a copy of the packet, without its log."""
        return Record(self.shape, self.shape.memory.from_buffer_copy(self.memory), self.payload)

    def report(self, step: Step, *values: int, frame: bytes = b"") -> None:
        """Report a step, if it is traced."""
        if self.log is not None:
            self.log.add(step, None, values, frame)

    def branch(self, copy: Record) -> Record:
        """Return the copy, traced as this packet is."""
        copy.log = None if self.log is None else self.log.branch()
        return copy

    def __getitem__(self, slot: int) -> int:
        word = self.shape.words[slot]
        if word is not None:
            return (self._signed if self.shape.masks[slot] < 0 else self._unsigned)[word]
        kind, start = self.shape.kinds[slot], self.shape.offsets[slot]
        data = self._bytes[start : start + kind.bytes_]
        return int.from_bytes(data, "big" if kind.wide else "little", signed=kind.signed)

    def __setitem__(self, slot: int, value: int) -> None:
        """Store a number, cut to the width of an unsigned slot."""
        word, mask = self.shape.words[slot], self.shape.masks[slot]
        if word is not None:
            (self._signed if mask < 0 else self._unsigned)[word] = value & mask
            return
        kind, start = self.shape.kinds[slot], self.shape.offsets[slot]
        data = (value & mask).to_bytes(kind.bytes_, "big" if kind.wide else "little", signed=kind.signed)
        self._bytes[start : start + kind.bytes_] = data


NORMAL, INGRESS_CLONE, EGRESS_CLONE, COALESCED, RECIRCULATED, REPLICATION, RESUBMITTED = range(7)
MAX_PASSES = 1000  # ingress and egress passes that one frame may cause

Frames = list[tuple[int, bytes]]
DigestHandler = Callable[[str, list[tuple[int, ...]]], None]
"""A function that is called with the name of a digest and its rows."""


@dataclass(frozen=True)
class Stages:
    """Functions that run a packet through one block of the program; `parse` returns the number of bytes parsed."""

    parse: Callable[[Record, bytes], int]
    verify: Callable[[Record], object] | None
    ingress: Callable[[Record], object]
    egress: Callable[[Record], object]
    update: Callable[[Record], object] | None
    deparse: Callable[[Record], bytes]


class TrafficManager:
    """Runs frames through the stages of a program, in simple_switch's order."""

    def __init__(
        self,
        program: Program,
        features: Features,
        stages: Stages,
        replication: Replication,
        on_digest: DigestHandler,
        blank: Record,
        queues: EgressQueues[Record] | None = None,
    ) -> None:
        """`blank` is a packet of zeros. Without `queues` packets pass egress at once."""
        self._queues = queues
        self.replication = replication
        self._stages = self.traced = stages
        """The program's stages, by `traced`: whether they are for packets that have a log."""
        self._on_digest = on_digest
        self._meta = meta = program.standard
        self._drop_port, self._not_dropped = program.target.drop_port, program.target.not_dropped
        self._started_us = microseconds()
        self._blank = blank
        self._blank[packet.TRUNCATE] = packet.NO_TRUNCATION
        self._blank[packet.PARSER_ERROR] = program.errors.no_error
        # Times are filled only when the program reads them.
        self._ingress_time, self._egress_time = (
            slot if slot in features.reads else None for slot in (meta.ingress_time, meta.egress_time)
        )
        self._metadata = [slot for h in program.headers if h.metadata for slot in range(h.base, h.base + h.type.slots)]
        self._field_lists = {id: [slot.number for slot in slots] for id, slots in program.field_lists.items()}
        self._digests = {
            id: (digest.name, [(slot.number, (1 << slot.bits) - 1) for slot in digest.fields])
            for id, digest in program.digests.items()
        }

    def process(self, port: int, frame: bytes, log: CopyLog | None = None) -> Frames:
        """Run one frame that arrived at `port`; return all frames to send, in order: none with queues, see `depart`."""
        fields = self._new_packet(port, len(frame), NORMAL)
        fields.log = log
        if self._queues is not None:
            self._arrive(self._queues, fields, frame)
            return []
        out: Frames = []
        self._run(fields, frame, out)
        return out

    def depart(self) -> Frames | None:
        """Run the next packet of the queues; return the frames to send, or None if no packet is due."""
        queues, meta = self._queues, self._meta
        served = None if queues is None else queues.pop(time.monotonic_ns())
        if queues is None or served is None:
            return None
        port, priority, fields = served
        if meta.enqueue_time is not None and meta.dequeue_delay is not None:
            fields[meta.dequeue_delay] = self._now() - fields[meta.enqueue_time]
        if meta.dequeue_depth is not None:
            fields[meta.dequeue_depth] = queues.depth(port, priority)
        if meta.queue is not None:
            fields[meta.queue] = priority
        out: Frames = []
        copies: deque[Record] = deque()
        with nullcontext() if fields.log is None else fields.log.log.handed_over():
            again = self._egress_pass(fields, copies, out)
            self._enqueue(queues, copies)
            if again is not None:
                self._arrive(queues, *again)
        return out

    def _arrive(self, queues: EgressQueues[Record], fields: Record, frame: bytes) -> None:
        """Run ingress, also over what is resubmitted, and put all copies into their queues."""
        copies: deque[Record] = deque()
        again: tuple[Record, bytes] | None = (fields, frame)
        passes = 0
        while again is not None:
            passes += 1
            if passes > MAX_PASSES:
                raise ExecutionError(f"one frame was resubmitted {MAX_PASSES} times: does the program do so for ever?")
            again = self._ingress_pass(*again, copies)
        self._enqueue(queues, copies)

    def _enqueue(self, queues: EgressQueues[Record], copies: deque[Record]) -> None:
        """Put packets into the queues of their ports; those that find it full are dropped."""
        meta = self._meta
        refused = -1
        while copies:
            fields = copies.popleft()
            port = fields.out_port
            priority = 0 if meta.priority is None else fields[meta.priority]
            if priority >= queues.priorities:
                refused = priority
                continue
            if meta.enqueue_time is not None:
                fields[meta.enqueue_time] = self._now()
            if meta.enqueue_depth is not None:
                fields[meta.enqueue_depth] = queues.depth(port, priority)
            fields.report(Step.QUEUED, port, priority, queues.push(port, priority, fields, time.monotonic_ns()))
        if refused >= 0:
            raise ExecutionError(
                f"a packet has priority {refused}, and its port {queues.priorities} queues (--priority-queues)"
            )

    def _new_packet(self, port: int, length: int, kind: int) -> Record:
        fields = self._blank.copy()
        fields[packet.LENGTH] = fields[packet.INGRESS_LENGTH] = fields[self._meta.packet_length] = length
        fields[self._meta.ingress_port] = port
        fields[self._meta.instance_type] = kind
        if self._ingress_time is not None:
            fields[self._ingress_time] = self._now()
        return fields

    def _now(self) -> int:
        return microseconds() - self._started_us

    # ---- passes

    def _stages_of(self, fields: Record) -> Stages:
        return self._stages if fields.log is None else self.traced

    def _parse(self, fields: Record, frame: bytes) -> None:
        stages = self._stages_of(fields)
        fields.payload = frame[stages.parse(fields, frame) :]
        if stages.verify is not None:
            stages.verify(fields)
        if self._meta.parser_error is not None:
            fields[self._meta.parser_error] = fields[packet.PARSER_ERROR]
        if self._meta.checksum_error is not None:
            fields[self._meta.checksum_error] = fields[packet.CHECKSUM_ERROR]
        fields.report(Step.CHECKED)

    def _dispatch(self, fields: Record) -> Iterable[Record]:
        """Send the digest after ingress; return the copies for egress."""
        fields[packet.EXIT] = 0
        if fields[packet.DIGEST]:
            self._send_digest(fields)
        group = fields[self._meta.mcast_grp] if self._meta.mcast_grp is not None else 0
        if group:
            fields[self._meta.instance_type] = REPLICATION
            replicas = self.replication.multicast_groups.get(group, ())
            fields.report(Step.MULTICAST, group, len(replicas))
            return self._replicate(fields, replicas)
        port = fields[self._meta.egress_spec]
        fields.report(Step.UNICAST, port)
        if port == self._drop_port:
            return ()
        fields[self._meta.instance_type] = NORMAL
        fields.out_port = port
        return (fields,)

    def _replicate(self, fields: Record, replicas: Iterable[Replica]) -> list[Record]:
        copies = []
        for replica in replicas:
            copy = fields.copy()
            copy.log = None if fields.log is None else CopyLog(fields.log.log, fields.log.number)
            copy.report(Step.COPY, replica.port, replica.instance)
            copy.out_port = replica.port
            if self._meta.egress_rid is not None:
                copy[self._meta.egress_rid] = replica.instance
            copies.append(copy)
        return copies

    def _start_egress(self, fields: Record) -> None:
        if self._egress_time is not None:
            fields[self._egress_time] = self._now()
        fields[self._meta.egress_port] = fields.out_port
        fields[self._meta.egress_spec] = self._not_dropped
        fields[self._meta.packet_length] = fields[packet.LENGTH]

    def _deparse(self, fields: Record) -> bytes:
        stages = self._stages_of(fields)
        fields.report(Step.DEPARSER)
        if stages.update is not None:
            stages.update(fields)
        frame = stages.deparse(fields)
        fields.report(Step.DEPARSED)
        limit = fields[packet.TRUNCATE]
        return frame if len(frame) <= limit else frame[:limit]

    def _send_digest(self, fields: Record) -> None:
        digest = self._digests.get(fields[packet.DIGEST])
        fields[packet.DIGEST] = 0
        if digest is not None:
            name, columns = digest
            self._on_digest(name, [tuple(fields[slot] & mask for slot, mask in columns)])

    def _run(self, fields: Record, frame: bytes, out: Frames) -> None:
        """Run a frame and all packets that it causes. Copies pass egress in order; a resubmitted or
        recirculated packet starts after all copies made before it."""
        arrivals = deque([(fields, frame)])
        departures: deque[Record] = deque()
        passes = 0
        while arrivals or departures:
            passes += 1
            if passes > MAX_PASSES:
                raise ExecutionError(
                    f"one frame caused more than {MAX_PASSES} passes: does the program recirculate for ever?"
                )
            if departures:
                again = self._egress_pass(departures.popleft(), departures, out)
            else:
                again = self._ingress_pass(*arrivals.popleft(), departures)
            if again is not None:
                arrivals.append(again)

    def _ingress_pass(self, fields: Record, frame: bytes, departures: deque[Record]) -> tuple[Record, bytes] | None:
        port, length = fields[self._meta.ingress_port], fields[packet.LENGTH]
        self._parse(fields, frame)
        self._stages_of(fields).ingress(fields)
        if fields[packet.CLONE]:
            session = self._take_clone(fields, in_egress=False)
            if session is not None:
                # The clone is parsed again with the ingress port alone; then its metadata is reset.
                copy = fields.branch(self._blank.copy())
                copy[self._meta.ingress_port] = port
                copy[packet.LENGTH] = copy[packet.INGRESS_LENGTH] = length
                self._parse(copy, frame)
                self._keep(copy, fields, fields[packet.CLONE_FIELDS], INGRESS_CLONE)
                departures.extend(self._clone_copies(copy, session))
        if fields[packet.RESUBMIT]:
            if fields[packet.DIGEST]:
                self._send_digest(fields)
            fields.report(Step.RESUBMITTED)
            copy = fields.branch(self._blank.copy())
            copy[packet.LENGTH] = copy[packet.INGRESS_LENGTH] = length
            copy.report(Step.RECEIVED, length, frame=frame)
            self._keep(copy, fields, fields[packet.RESUBMIT], RESUBMITTED)
            copy[self._meta.packet_length] = length
            return copy, frame
        departures.extend(self._dispatch(fields))
        return None

    def _egress_pass(self, fields: Record, departures: deque[Record], out: Frames) -> tuple[Record, bytes] | None:
        self._start_egress(fields)
        self._stages_of(fields).egress(fields)
        fields[packet.EXIT] = 0
        if fields[packet.CLONE]:
            session = self._take_clone(fields, in_egress=True)
            if session is not None:
                copy = fields.branch(fields.copy())
                copy[packet.RECIRCULATE] = 0
                self._reset_metadata(copy)
                self._keep(copy, fields, fields[packet.CLONE_FIELDS], EGRESS_CLONE)
                departures.extend(self._clone_copies(copy, session))
        fields.report(Step.LEFT, fields[self._meta.egress_spec])
        if fields[self._meta.egress_spec] == self._drop_port:
            return None
        frame = self._deparse(fields)
        if not fields[packet.RECIRCULATE]:
            out.append((fields.out_port, frame))
            fields.report(Step.SENT, fields.out_port, len(frame), frame=frame)
            return None
        fields.report(Step.RECIRCULATED)
        copy = fields.branch(self._blank.copy())
        copy.report(Step.RECEIVED, len(frame), frame=frame)
        self._keep(copy, fields, fields[packet.RECIRCULATE], RECIRCULATED)
        copy[packet.LENGTH] = copy[packet.INGRESS_LENGTH] = copy[self._meta.packet_length] = len(frame)
        return copy, frame

    def _take_clone(self, fields: Record, *, in_egress: bool) -> CloneSession | None:
        session = self.replication.clone_sessions.get(fields[packet.CLONE] - 1)
        replicas = 0 if session is None else len(session.replicas)
        fields.report(Step.CLONED, fields[packet.CLONE] - 1, in_egress, replicas)
        fields[packet.CLONE] = 0
        return session

    def _clone_copies(self, copy: Record, session: CloneSession) -> list[Record]:
        if session.truncate_len:
            copy[packet.TRUNCATE] = min(copy[packet.TRUNCATE], session.truncate_len)
        return self._replicate(copy, session.replicas)

    def _reset_metadata(self, fields: Record) -> None:
        for slot in self._metadata:
            fields[slot] = self._blank[slot]

    def _keep(self, copy: Record, fields: Record, field_list: int, kind: int) -> None:
        """Reset the metadata of a copy (the ingress port too, as on BMv2) except the fields of the list;
        set its instance type."""
        self._reset_metadata(copy)
        for slot in self._field_lists.get(field_list, ()):
            copy[slot] = fields[slot]
        copy[self._meta.instance_type] = kind

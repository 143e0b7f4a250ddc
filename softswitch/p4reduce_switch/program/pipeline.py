"""The traffic manager of simple_switch: what happens between parser, ingress, egress and deparser."""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from . import layout as slots
from .compiler import compile_program
from .errors import ExecutionError, InvalidProgram
from .executor import DigestHandler
from .metadata import StandardMetadata
from .primitives import DROP_PORT
from .replication import MAX_PORT, CloneSession, Replica, Replication
from .stateful import microseconds

NORMAL, INGRESS_CLONE, EGRESS_CLONE, COALESCED, RECIRCULATED, REPLICATION, RESUBMITTED = range(7)
MAX_PASSES = 1000  # ingress and egress passes that one frame may cause

Fields = list[Any]
Frames = list[tuple[int, bytes]]


class Program:
    """A v1model program, loaded and ready to run."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.on_digest: DigestHandler | None = None
        self.on_log: Callable[[str], None] | None = None
        self.random = random.Random()
        self._compiled = compiled = compile_program(config, {"log": self._log, "random": self.random})
        self.source = compiled.source
        self.tables = compiled.tables
        self.counters = compiled.counters
        self.registers = compiled.registers
        self.meters = compiled.meters
        self.replication = Replication()
        self._started_us = microseconds()
        self._prepare()

    @classmethod
    def load(cls, config: bytes | str | dict[str, Any]) -> Program:
        """Compile a BMv2 JSON (the output of p4c-bm2-ss).

        UnsupportedConstruct names what the program uses and this executor does not implement;
        InvalidProgram says that this is no such JSON.
        """
        if not isinstance(config, dict):
            try:
                config = json.loads(config)
            except ValueError as error:
                raise InvalidProgram(f"the pipeline configuration is not JSON: {error}") from error
        if not isinstance(config, dict):
            raise InvalidProgram("the pipeline configuration is not a JSON object")
        return cls(config)

    def process(self, port: int, frame: bytes) -> Frames:
        """Take one frame that arrived at `port`; returns all frames to send, in order.

        ExecutionError: the frame met undefined behaviour; nothing is sent, registers and counters
        keep what was written before.
        """
        if not 0 <= port <= MAX_PORT:
            raise ValueError(f"port {port} is outside 0..{MAX_PORT}")
        out: Frames = []
        fields = self._new_packet(port, len(frame), NORMAL)
        if not self._simple:
            self._run(fields, frame, out)
            return out
        self._parse(fields, frame)
        self._compiled.ingress(fields)
        for copy in self._dispatch(fields):
            self._run_egress(copy, out)
        return out

    # ---- setting up

    def _prepare(self) -> None:
        compiled = self._compiled
        self._meta = StandardMetadata.find(compiled.layout)
        self._blank: Fields = [0] * compiled.layout.size
        self._blank[slots.PAYLOAD] = b""
        self._blank[slots.TRUNCATE] = slots.NO_TRUNCATION
        self._blank[slots.PARSER_ERROR] = compiled.errors["NoError"]
        # A program that never clones, resubmits or recirculates takes a short way.
        rare = (slots.CLONE, slots.RESUBMIT, slots.RECIRCULATE)
        self._simple = not any(f"f[{slot}] = " in compiled.source for slot in rare)

    def _new_packet(self, port: int, length: int, kind: int) -> Fields:
        fields = self._blank[:]
        fields[slots.LENGTH] = fields[slots.INGRESS_LENGTH] = fields[self._meta.packet_length] = length
        fields[self._meta.ingress_port] = port
        fields[self._meta.instance_type] = kind
        if self._meta.ingress_time >= 0:
            fields[self._meta.ingress_time] = self._now()
        return fields

    def _now(self) -> int:
        return microseconds() - self._started_us & 0xFFFFFFFFFFFF

    def _log(self, text: str, values: tuple[int, ...]) -> None:
        """log_msg: nothing is logged on the packet path unless someone asks for it."""
        if self.on_log is not None:
            for value in values:
                text = text.replace("{}", str(value), 1)
            self.on_log(text)

    # ---- passes

    def _parse(self, fields: Fields, frame: bytes) -> None:
        compiled = self._compiled
        fields[slots.PAYLOAD] = frame[compiled.parse(fields, frame) :]
        if compiled.verify is not None:
            compiled.verify(fields)
        if self._meta.parser_error >= 0:
            fields[self._meta.parser_error] = fields[slots.PARSER_ERROR]
        if self._meta.checksum_error >= 0:
            fields[self._meta.checksum_error] = fields[slots.CHECKSUM_ERROR]

    def _dispatch(self, fields: Fields) -> Iterable[Fields]:
        """After ingress: digest, then the copies that go to egress."""
        fields[slots.EXIT] = 0
        if fields[slots.DIGEST]:
            self._send_digest(fields)
        group = fields[self._meta.mcast_grp] if self._meta.mcast_grp >= 0 else 0
        if group:
            fields[self._meta.instance_type] = REPLICATION
            return self._replicate(fields, self.replication.multicast_groups.get(group, ()))
        port = fields[self._meta.egress_spec]
        if port == DROP_PORT:
            return ()
        fields[self._meta.instance_type] = NORMAL
        fields[self._meta.egress_port] = port
        return (fields,)

    def _replicate(self, fields: Fields, replicas: Iterable[Replica]) -> list[Fields]:
        copies = []
        for replica in replicas:
            copy = fields[:]
            copy[self._meta.egress_port] = replica.port
            if self._meta.egress_rid >= 0:
                copy[self._meta.egress_rid] = replica.instance
            copies.append(copy)
        return copies

    def _run_egress(self, fields: Fields, out: Frames) -> None:
        """Egress and deparser of a packet that makes no further copies."""
        self._start_egress(fields)
        self._compiled.egress(fields)
        if fields[self._meta.egress_spec] != DROP_PORT:
            out.append((fields[self._meta.egress_port], self._deparse(fields)))

    def _start_egress(self, fields: Fields) -> None:
        if self._meta.egress_time >= 0:
            fields[self._meta.egress_time] = self._now()
        if self._meta.enqueue_time >= 0:
            fields[self._meta.enqueue_time] = self._now() & 0xFFFFFFFF
        fields[self._meta.egress_spec] = 0  # anything but the drop port
        fields[self._meta.packet_length] = fields[slots.LENGTH]

    def _deparse(self, fields: Fields) -> bytes:
        compiled = self._compiled
        if compiled.update is not None:
            compiled.update(fields)
        frame = compiled.deparse(fields)
        limit: int = fields[slots.TRUNCATE]
        return frame if len(frame) <= limit else frame[:limit]

    def _send_digest(self, fields: Fields) -> None:
        digest = self._compiled.digests.get(fields[slots.DIGEST])
        fields[slots.DIGEST] = 0
        if digest is not None and self.on_digest is not None:
            name, columns = digest
            self.on_digest(name, [tuple(fields[slot] & mask for slot, mask in columns)])

    # ---- the general case: clones, resubmits and recirculations

    def _run(self, fields: Fields, frame: bytes, out: Frames) -> None:
        """Run a frame and all that comes of it. Copies wait for egress in order; a resubmitted or
        recirculated packet starts when all copies made before it have left."""
        arrivals = deque([(fields, frame)])
        departures: deque[Fields] = deque()
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

    def _ingress_pass(
        self, fields: Fields, frame: bytes, departures: deque[Fields]
    ) -> tuple[Fields, bytes] | None:
        port, length = fields[self._meta.ingress_port], fields[slots.LENGTH]
        self._parse(fields, frame)
        self._compiled.ingress(fields)
        if fields[slots.CLONE]:
            session = self._take_clone(fields)
            if session is not None:
                # Only the ingress port is set when the clone is parsed again; then metadata starts anew.
                copy = self._blank[:]
                copy[self._meta.ingress_port] = port
                copy[slots.LENGTH] = copy[slots.INGRESS_LENGTH] = length
                self._parse(copy, frame)
                self._keep(copy, fields, fields[slots.CLONE_FIELDS], INGRESS_CLONE)
                departures.extend(self._clone_copies(copy, session))
        if fields[slots.RESUBMIT]:
            if fields[slots.DIGEST]:
                self._send_digest(fields)
            copy = self._blank[:]
            copy[slots.LENGTH] = copy[slots.INGRESS_LENGTH] = length
            self._keep(copy, fields, fields[slots.RESUBMIT], RESUBMITTED)
            copy[self._meta.packet_length] = length
            return copy, frame
        departures.extend(self._dispatch(fields))
        return None

    def _egress_pass(
        self, fields: Fields, departures: deque[Fields], out: Frames
    ) -> tuple[Fields, bytes] | None:
        self._start_egress(fields)
        self._compiled.egress(fields)
        fields[slots.EXIT] = 0
        if fields[slots.CLONE]:
            session = self._take_clone(fields)
            if session is not None:
                copy = fields[:]
                copy[slots.RECIRCULATE] = 0
                self._reset_metadata(copy)
                self._keep(copy, fields, fields[slots.CLONE_FIELDS], EGRESS_CLONE)
                departures.extend(self._clone_copies(copy, session))
        if fields[self._meta.egress_spec] == DROP_PORT:
            return None
        frame = self._deparse(fields)
        if not fields[slots.RECIRCULATE]:
            out.append((fields[self._meta.egress_port], frame))
            return None
        copy = self._blank[:]
        self._keep(copy, fields, fields[slots.RECIRCULATE], RECIRCULATED)
        copy[slots.LENGTH] = copy[slots.INGRESS_LENGTH] = copy[self._meta.packet_length] = len(frame)
        return copy, frame

    def _take_clone(self, fields: Fields) -> CloneSession | None:
        session = self.replication.clone_sessions.get(fields[slots.CLONE] - 1)
        fields[slots.CLONE] = 0
        return session

    def _clone_copies(self, copy: Fields, session: CloneSession) -> list[Fields]:
        if session.truncate_len:
            copy[slots.TRUNCATE] = min(copy[slots.TRUNCATE], session.truncate_len)
        return self._replicate(copy, session.replicas)

    def _reset_metadata(self, fields: Fields) -> None:
        for start, end in self._compiled.layout.metadata_ranges():
            fields[start:end] = self._blank[start:end]

    def _keep(self, copy: Fields, fields: Fields, field_list: int, kind: int) -> None:
        """Metadata of a copy: all zero (the ingress port too, as on BMv2) but the fields of the list,
        and its instance type."""
        self._reset_metadata(copy)
        for slot in self._compiled.field_lists.get(field_list, ()):
            copy[slot] = fields[slot]
        copy[self._meta.instance_type] = kind

"""Replays a case's steps on a switch, and tells where two switches' answers differ."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import grpc

from conformance.case import Answers, Arrive, Case, Outputs, PacketOut, PortState, Step, Write
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime import bytestrings, codec
from p4reduce_runtime.p4runtime.entries import TableEntry
from p4reduce_runtime.p4runtime.schema import CounterInfo, counter_info, parse_p4info
from rigs.entity_text import entity
from rigs.limits import LIMIT_S
from rigs.p4rt import Raw, config

MAX_DIFFERENCES = 5


class Target(Protocol):
    """A switch under test that a P4Runtime server at `address` controls."""

    address: str

    def pipeline_set(self) -> None:
        """Called when the switch has its program; returns when it takes frames."""

    def arrive(self, port: int, frame: bytes) -> Outputs:
        """Everything that leaves because of this frame, in order for each port."""

    def packet_out(self, send: Callable[[], None]) -> Outputs:
        """Everything that leaves because of the packet-out that `send` sends."""

    def set_port(self, port: int, up: bool) -> None:
        """A port goes down or comes up; returns when the switch has taken note."""

    def punted(self) -> tuple[int, int] | None:
        """Return how many packet-ins and distinct digest messages the switch made; None if it cannot tell."""


class Controller(Raw):
    """The primary controller of a replay: it keeps what it is sent."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._changed = threading.Condition()
        self.packet_ins: list[tuple[dict[str, int], bytes]] = []
        self.digests: dict[tuple[str, tuple[int, ...]], None] = {}
        self.open(wait_for_ready=True)
        assert self.arbitrate().status.code == 0
        self._listening = threading.Thread(target=self._listen)
        self._listening.start()

    def __exit__(self, *exception: object) -> None:
        self._outgoing.put(None)  # the next replay has the same election id: the switch ends this one's stream first
        self._listening.join(LIMIT_S)
        super().__exit__(*exception)

    def _listen(self) -> None:
        """Take packet-ins and digests until the stream ends."""
        with contextlib.suppress(grpc.RpcError, StopIteration):
            while True:
                message = self.next()
                with self._changed:
                    if message.HasField("packet"):
                        names = {field.id: field.name for field in self.schema.packet_in}
                        values = {
                            names[one.metadata_id]: bytestrings.decode(one.value) for one in message.packet.metadata
                        }
                        self.packet_ins.append((values, message.packet.payload))
                    elif message.HasField("digest"):
                        digest = message.digest
                        name = self.schema.digests.find(digest.digest_id).name
                        self.digests.update({(name, codec.decode_data(row)): None for row in digest.data})
                        self.send(digest_ack={"digest_id": digest.digest_id, "list_id": digest.list_id})
                    self._changed.notify_all()

    def packet_out(self, payload: bytes, egress_port: int) -> None:
        """Send a frame out of a port; other metadata of the program is 0."""
        values = {field: egress_port if field.name == "egress_port" else 0 for field in self.schema.packet_out}
        metadata = [
            {"metadata_id": field.id, "value": bytestrings.encode(value, field.bitwidth)}
            for field, value in values.items()
        ]
        self.send(packet={"payload": payload, "metadata": metadata})

    def wait_for(self, packet_ins: int, digests: int) -> None:
        """Wait until that many have come; TimeoutError says how many did."""
        with self._changed:
            if not self._changed.wait_for(
                lambda: len(self.packet_ins) >= packet_ins and len(self.digests) >= digests, LIMIT_S
            ):
                raise TimeoutError(
                    f"{len(self.packet_ins)} of {packet_ins} packet-ins and {len(self.digests)} of {digests} "
                    f"digests came within {LIMIT_S} s"
                )

    def wait_until_quiet(self, quiet_s: float = 0.3) -> None:
        """Wait until nothing has come for a while."""
        deadline = time.monotonic() + LIMIT_S
        with self._changed:
            while self._changed.wait(quiet_s) and time.monotonic() < deadline:
                pass

    def counters(self) -> dict[str, dict[str, tuple[int, int]]]:
        """Cells that counted something, of direct and indirect counters."""
        found: dict[str, dict[str, tuple[int, int]]] = {}
        for info in self.schema.counters:
            entity = p4r.Entity()
            entity.counter_entry.counter_id = info.id
            read = [one.counter_entry for one in self.read(entity)]
            cells = {str(one.index.index): (one.data.packet_count, one.data.byte_count) for one in read}
            found[info.name] = _declared(info, cells)
        for direct in self.schema.p4info.direct_counters:
            cells = self._direct_counts(direct.direct_table_id)
            found[direct.preamble.name] = _declared(counter_info(direct), cells)
        return {name: cells for name, cells in found.items() if cells}

    def _direct_counts(self, table_id: int) -> dict[str, tuple[int, int]]:
        """The direct counters of a table's entries, by what these match."""
        entity = p4r.Entity()
        entity.direct_counter_entry.table_entry.table_id = table_id
        cells = {}
        for found in self.read(entity):
            key = codec.decode(self.schema, p4r.Entity(table_entry=found.direct_counter_entry.table_entry))
            assert isinstance(key, TableEntry)
            data = found.direct_counter_entry.data
            cells[str(sorted(key.match.items()))] = (data.packet_count, data.byte_count)
        return cells


def replay(case: Case, target: Target, steps: Sequence[Step] | None = None) -> Answers:
    """Give the switch the case's program and steps; returns what it answered."""
    with Controller(target.address) as controller:
        p4info = parse_p4info(case.p4info.read_text())
        controller.set_config(config=config(case.json.read_bytes(), p4info=p4info))
        target.pipeline_set()
        answers = tuple(_step(controller, target, step) for step in (case.steps if steps is None else steps))
        expected = target.punted()
        if expected is None:
            controller.wait_until_quiet()
        else:
            controller.wait_for(*expected)
        counters = controller.counters()
    return Answers(answers, tuple(controller.packet_ins), tuple(controller.digests), counters)


def _step(controller: Controller, target: Target, step: Step) -> Outputs | tuple[str, ...]:
    if isinstance(step, Arrive):
        return target.arrive(step.port, step.frame)
    if isinstance(step, PacketOut):
        return target.packet_out(lambda: controller.packet_out(step.payload, step.egress_port))
    if isinstance(step, PortState):
        target.set_port(step.port, step.up)
        return ()
    if not step.updates:
        return ()
    codes = controller.write(
        *((op.upper(), entity(controller.schema, e) if isinstance(e, str) else e) for op, e in step.updates)
    )
    return tuple(f"{index} {code}" for index, code in enumerate(codes) if code != "OK")


def differences(steps: Sequence[Step], ours: Answers, theirs: Answers, *, any_order: bool = False) -> list[str]:
    """Return where two switches' answers differ in their canonical forms; the first few.

    `any_order`: what one step sends out of one port may come in any order.
    """
    found = []
    ours, theirs = ours.canonical(any_order=any_order), theirs.canonical(any_order=any_order)
    for number, (step, a, b) in enumerate(zip(steps, ours.steps, theirs.steps, strict=True)):
        if a != b and not _same_refusals(a, b):
            found.append(f"step {number}, {describe(step)}:\n    ours   {show(a)}\n    BMv2's {show(b)}")
    if ours.packet_ins != theirs.packet_ins:
        found.append(f"packet-ins:\n    ours   {ours.packet_ins}\n    BMv2's {theirs.packet_ins}")
    if ours.digests != theirs.digests:
        found.append(f"digests:\n    ours   {ours.digests}\n    BMv2's {theirs.digests}")
    if ours.counters != theirs.counters:
        found.append(f"counters:\n    ours   {ours.counters}\n    BMv2's {theirs.counters}")
    return found[:MAX_DIFFERENCES]


def _same_refusals(ours: Outputs | tuple[str, ...], theirs: Outputs | tuple[str, ...]) -> bool:
    """Whether both refused the same updates, for the same reason or for one that BMv2 calls UNKNOWN."""
    if not all(isinstance(part, str) for part in (*ours, *theirs)) or len(ours) != len(theirs):
        return False
    pairs = [(str(a).split(), str(b).split()) for a, b in zip(ours, theirs, strict=True)]
    return all(a[0] == b[0] and b[1] in (a[1], "UNKNOWN") for a, b in pairs)


def _declared(counter: CounterInfo, cells: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """The cells that counted something; of packets and bytes only what the counter declares, since BMv2 counts
    both in every counter and P4Runtime leaves the other open."""
    masked = {cell: (packets * counter.packets, bytes_ * counter.bytes) for cell, (packets, bytes_) in cells.items()}
    return {cell: both for cell, both in sorted(masked.items()) if any(both)}


def describe(step: Step) -> str:
    if isinstance(step, Write):
        return f"write {step.updates}"
    if isinstance(step, Arrive):
        return f"frame at port {step.port}: {step.frame.hex()}"
    if isinstance(step, PortState):
        return f"port {step.port} {'up' if step.up else 'down'}"
    return f"packet-out to port {step.egress_port}: {step.payload.hex()}"


def show(answer: Outputs | tuple[str, ...]) -> str:
    return " ".join(part if isinstance(part, str) else f"{part[0]}:{part[1].hex()}" for part in answer) or "nothing"

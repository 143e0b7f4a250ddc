"""What a conformance case is: a program, a list of steps, and what a switch answered to them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from p4reduce_runtime.p4runtime.entries import DigestConfig, Entry, MeterConfig, MeterEntry, MulticastGroup, TableEntry

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
ARTIFACTS = HERE.parents[2] / "p4src/artifacts/v1model"
KINDS = {kind.__name__: kind for kind in (TableEntry, MeterEntry, MulticastGroup, DigestConfig)}

Outputs = tuple[tuple[int, bytes], ...]
"""(port, frame) of everything that left."""


@dataclass(frozen=True)
class Write:
    """One P4Runtime batch of (operation, entry). A string is an entity's text form (rigs/entity_text.py)."""

    updates: tuple[tuple[str, Entry | str], ...]


@dataclass(frozen=True)
class Arrive:
    """A frame arrives at a port."""

    port: int
    frame: bytes


@dataclass(frozen=True)
class PacketOut:
    """The controller sends a frame out of a port."""

    egress_port: int
    payload: bytes


@dataclass(frozen=True)
class PortState:
    """A port goes down, or comes up again; until a case says so all are up."""

    port: int
    up: bool


Step = Write | Arrive | PacketOut | PortState


@dataclass(frozen=True)
class Case:
    """Steps for one program. `json` and `p4info` are files below the repository's root."""

    name: str
    json: Path
    p4info: Path
    steps: tuple[Step, ...]

    def digests(self) -> dict[str, str]:
        """SHA-256 of the program's two files."""
        return {
            kind: hashlib.sha256(path.read_bytes()).hexdigest()
            for kind, path in (("json", self.json), ("p4info", self.p4info))
        }


def insert(*entries: Entry | str) -> Write:
    """A batch that only inserts."""
    return Write(tuple(("insert", entry) for entry in entries))


@dataclass(frozen=True)
class Answers:
    """The answers of a switch: one a step, and its state at the end.

    The answer to a frame is what left, to a batch its refused updates, "index CODE".
    """

    steps: tuple[Outputs | tuple[str, ...], ...]
    packet_ins: tuple[tuple[Mapping[str, int], bytes], ...] = ()
    digests: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Distinct digest messages in the order in which they first came."""
    counters: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)
    """(packets, bytes) by counter and cell; cells that counted nothing are left out."""

    def canonical(self, *, any_order: bool = False) -> Answers:
        """Return the form in which answers are compared and recorded: equal where they differ in nothing that counts.

        What leaves is ordered by port; frames of one port keep their order, unless `any_order`, which sorts them too.
        Counters, their cells and the fields of packet-ins are ordered by name.
        """
        return Answers(
            tuple(canonical_answer(answer, any_order=any_order) for answer in self.steps),
            tuple((dict(sorted(metadata.items())), payload) for metadata, payload in self.packet_ins),
            self.digests,
            {name: dict(sorted(cells.items())) for name, cells in sorted(self.counters.items())},
        )


def canonical_answer(answer: Outputs | tuple[str, ...], *, any_order: bool) -> Outputs | tuple[str, ...]:
    """One step's answer in the order of `Answers.canonical`; refused updates stay as they are."""
    outputs: list[Any] = [part for part in answer if not isinstance(part, str)]
    if not outputs:
        return answer
    return tuple(sorted(outputs) if any_order else sorted(outputs, key=lambda output: output[0]))


# ---- to JSON and back


def step_to_json(step: Step) -> dict[str, Any]:
    if isinstance(step, Write):
        return {"write": [[op, type(entry).__name__, _entry_to_json(entry)] for op, entry in step.updates]}
    if isinstance(step, Arrive):
        return {"port": step.port, "frame": step.frame.hex()}
    if isinstance(step, PortState):
        return {"port_state": step.port, "up": step.up}
    return {"packet_out": step.egress_port, "frame": step.payload.hex()}


def step_from_json(row: Mapping[str, Any]) -> Step:
    if "write" in row:
        return Write(tuple((op, _entry_from_json(kind, entry)) for op, kind, entry in row["write"]))
    if "port_state" in row:
        return PortState(row["port_state"], row["up"])
    frame = bytes.fromhex(row["frame"])
    return Arrive(row["port"], frame) if "port" in row else PacketOut(row["packet_out"], frame)


def answer_to_json(answer: Outputs | tuple[str, ...]) -> list[Any]:
    return [part if isinstance(part, str) else [part[0], part[1].hex()] for part in answer]


def answer_from_json(row: list[Any]) -> Outputs | tuple[str, ...]:
    parts: list[Any] = [part if isinstance(part, str) else (part[0], bytes.fromhex(part[1])) for part in row]
    return tuple(parts)


def _entry_to_json(entry: Entry | str) -> dict[str, Any] | str:
    """The fields that are not at their defaults; match fields and parameters by name, whatever their order was."""
    if isinstance(entry, str):
        return entry
    blank = {f.name: f.default for f in dataclasses.fields(entry)}
    values = {name: getattr(entry, name) for name in blank}
    written = {name: value for name, value in values.items() if value != blank[name] and value not in ({}, ())}
    as_config = {name: dataclasses.asdict(value) for name, value in written.items() if name == "config"}
    by_name = {name: dict(sorted(value.items())) for name, value in written.items() if isinstance(value, Mapping)}
    return written | as_config | by_name


def _entry_from_json(kind: str, fields: Any) -> Any:
    if kind == "str":
        return fields
    values = {name: MeterConfig(**value) if name == "config" else _tuples(value) for name, value in fields.items()}
    return KINDS[kind](**values)


def _tuples(value: Any) -> Any:
    """JSON's lists as tuples, at every depth."""
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return value

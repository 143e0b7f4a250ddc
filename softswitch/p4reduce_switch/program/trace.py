"""What one frame did: the steps that traced code and the traffic manager report, as events with the program's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from p4reduce_switch.program.errors import ExecutionError
from p4reduce_switch.program.ir.externs import Counter, Meter, Register
from p4reduce_switch.program.ir.places import Header, HeaderElement, Member
from p4reduce_switch.program.ir.program import Action, Branch, Checksum, Primitive, Program, Source, State, Table
from p4reduce_switch.program.state.tables import Stored
from p4reduce_switch.program.state.tables import Table as Entries
from p4reduce_switch.program.steps import Step

DROPS = ("mark_to_drop", "drop")
"""Primitives that drop."""


class Event(msgspec.Struct, omit_defaults=True):
    """One step of one copy of a packet."""

    step: Step
    copy: int = 0
    """0: the packet that arrived; copies are numbered as they are made."""
    name: str = ""
    """The name of the state, header, table, action, primitive, extern or control."""
    at: str = ""
    """File and line of the P4 program, where the JSON has them."""
    code: str = ""
    """The text of the P4 program there."""
    values: dict[str, Any] = {}
    """The values of the step; those of fields are hexadecimal, in whole bytes."""
    frame: str = ""
    """The bytes that arrived or left, hexadecimal."""


class PacketTrace(msgspec.Struct, omit_defaults=True):
    """What a frame did, in order; with egress queues its copies that leave later are in later traces of its number."""

    number: int
    """The frames traced by this program before it."""
    port: int
    events: list[Event]
    waiting: int = 0
    """Number of its copies in egress queues, which later traces are about."""
    at_s: float = 0.0
    """When the program began with it: seconds since 1970, by the clock of the switch's host."""


TraceHandler = Callable[[PacketTrace], None]
"""A function that receives what a frame did, once that has run."""


class Log:
    """Takes the steps of one frame."""

    def __init__(
        self, program: Program, tables: dict[str, Entries], on_trace: TraceHandler, trace: PacketTrace, frame: bytes
    ) -> None:
        """`trace` is the empty one of the frame; `on_trace` receives it."""
        self._program, self._tables, self._on_trace = program, tables, on_trace
        self.trace = trace
        self._copies = 0
        self._drops: dict[int, str] = {}
        """The step that dropped each copy last, by copy."""
        self._action = ""
        self.add(0, Step.RECEIVED, None, (len(frame),), frame)

    def copied(self) -> int:
        """Return the number of a new copy."""
        self._copies += 1
        return self._copies

    def sent(self) -> list[Event]:
        """Return the steps with which a copy left."""
        return [event for event in self.trace.events if event.step is Step.SENT]

    @contextmanager
    def handed_over(self) -> Iterator[None]:
        """Hand over the trace of what runs inside; another of its number is about a copy that leaves a queue."""
        try:
            yield
        except ExecutionError as error:
            self.trace.events.append(Event(Step.FAILED, values={"error": str(error)}))
            raise
        finally:
            self._on_trace(self.trace)
            self.trace = PacketTrace(self.trace.number, self.trace.port, [], self.trace.waiting - 1, self.trace.at_s)

    def add(self, copy: int, step: Step, subject: Any, values: tuple[int, ...], frame: bytes = b"") -> None:
        """Take a step, with its subject and values as `Step` says."""
        event = Event(step, copy, frame=frame.hex())
        source: Source | None = getattr(subject, "source", None)
        if source is not None:
            event.at, event.code = str(source), source.code
        event.name = _printable(subject if isinstance(subject, str) else _name(subject))
        event.values = self._values(copy, step, subject, values)
        self.trace.waiting += step is Step.QUEUED and "dropped" not in event.values
        self.trace.events.append(event)

    def _values(self, copy: int, step: Step, subject: Any, values: tuple[int, ...]) -> dict[str, Any]:
        match subject:
            case State():
                keys = [_hex(value, bits) for value, (_, bits) in zip(values, subject.keys, strict=False)]
                return {"key": "".join(keys), "parsed": values[-1]} if subject.cases else {"parsed": values[-1]}
            case Header() | HeaderElement() | Member() if step is Step.EXTRACT and subject.type.varbit is not None:
                return {"varbit": True}
            case Checksum():
                if step is Step.UPDATED:
                    return {}
                return {"computed": values[0], "actual": values[1], "right": values[0] == values[1]}
            case Branch():
                return {"holds": bool(values[0])}
            case Table():
                return self._lookup(subject, values)
            case Action():
                self._action = subject.name
                pairs = zip(subject.parameters, values, strict=True)
                return {_printable(name): _hex(value, bits) for (name, bits), value in pairs}
            case Primitive():
                if subject.op in DROPS:
                    where = f" at {subject.source}" if subject.source is not None else ""
                    self._drops[copy] = f"{subject.op} in {self._action}{where}"
            case Register():
                return {"index": values[0], "value": values[1]}
            case Counter():
                return {"index": values[0]}
            case Meter():
                return {"index": values[0], "color": values[1]}
        return self._target(copy, step, values)

    def _target(self, copy: int, step: Step, values: tuple[int, ...]) -> dict[str, Any]:
        match step:
            case Step.RECEIVED:
                return {"port": self.trace.port, "bytes": values[0]}
            case Step.SENT:
                return {"port": values[0], "bytes": values[1]}
            case Step.PARSED if values[0] != self._program.errors.no_error:
                return {"error": self._program.errors.names.get(values[0], str(values[0]))}
            case Step.MULTICAST:
                found = {"group": values[0], "replicas": values[1]}
                return found if values[1] else found | {"dropped": f"group {values[0]} has no members"}
            case Step.UNICAST | Step.LEFT:
                found = {"port": values[0]}
                if values[0] != self._program.target.drop_port:
                    return found if step is Step.UNICAST else {}
                return found | {"dropped": self._drops.get(copy, "egress_spec is the drop port")}
            case Step.COPY:
                return {"port": values[0], "instance": values[1], "of": values[2]}
            case Step.CLONED:
                return {"session": values[0], "in": "egress" if values[1] else "ingress", "replicas": values[2]}
            case Step.QUEUED:
                found = {"port": values[0], "priority": values[1]}
                return found if values[2] else found | {"dropped": "its queue is full"}
        return {}

    def _lookup(self, table: Table, values: tuple[int, ...]) -> dict[str, Any]:
        keys = {_printable(key.name): _hex(value, key.bits) for key, value in zip(table.keys, values, strict=False)}
        row = values[-1]
        found: dict[str, Any] = {"key": keys, "hit": row >= 0}
        if row >= 0:
            stored = self._tables[table.name].by_row[row]
            found |= {"handle": row, "match": _match(table, stored), "priority": stored.priority}
            if stored.choices is not None:
                found["target"] = str(stored.call)
        return found


class CopyLog:
    """Takes the steps of one copy; those of a replica after a COPY."""

    def __init__(self, log: Log, origin: int = 0) -> None:
        """`origin`: the number of the copy, or, before a COPY, of what it is made of."""
        self.log, self.number, self._origin = log, origin, origin

    def branch(self) -> CopyLog:
        """Return the log of a new copy."""
        return CopyLog(self.log, self.log.copied())

    def add(self, step: Step, subject: Any = None, values: tuple[int, ...] = (), frame: bytes = b"") -> None:
        """Take a step."""
        if step is Step.COPY:
            self.number = self.log.copied()
            values = (*values, self._origin)
        self.log.add(self.number, step, subject, values, frame)


def _printable(name: str) -> str:
    """Return a name of the program for a terminal."""
    return name if name.isprintable() else ascii(name)


def _name(subject: Any) -> str:
    match subject:
        case HeaderElement():
            return f"{subject.stack.name}.next"
        case Member():
            return f"{subject.union.stack.name}.next"
        case Primitive():
            return subject.op
    return str(getattr(subject, "name", ""))


def _hex(value: int, bits: int) -> str:
    """Return a value in whole bytes."""
    return format(value & (1 << bits) - 1, f"0{(bits + 7) // 8 * 2}x")


def _match(table: Table, stored: Stored) -> dict[str, str]:
    """Return kind and value of each element of an entry's match."""
    found = {}
    for key, test in zip(table.keys, stored.match, strict=True):
        text = _hex(test.value, key.bits)
        if key.kind == "lpm":
            text += f"/{test.mask.bit_count()}"
        elif key.kind == "ternary":
            text += f" &&& {_hex(test.mask, key.bits)}"
        elif key.kind == "range":
            text = f"{_hex(test.low, key.bits)} -> {_hex(test.high, key.bits)}"
        elif not test.mask:
            text = "any"
        found[_printable(key.name)] = f"{key.kind.value} {text}"
    return found

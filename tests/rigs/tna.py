"""Executes p4src/tna: what p4c's front end made of it (front_end.json), statement by statement, as P4 defines it.

This is the program, not the chip: a register action is one indivisible step, as on the chip; stages, containers and the
assembler's code are not modelled. Of Tofino's fixed parts there is what the program uses: multicast by groups of (port,
replication id), egress that a frame may bypass, drop_ctl, meters (a test sets their colour), counters, digests; and the
FCS, which both pipelines see behind the frame, and whose four bytes the port that sends a frame writes anew.
"""

from __future__ import annotations

import operator
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from p4reduce_contracts.wire.checksum import internet_checksum

PARSER_ERROR_PARTIAL_HDR = 2
FCS_BYTES = 4
PORT_METADATA_BYTES = {1: 8, 2: 24}
"""Generation of Tofino -> bytes between the intrinsic header and the frame."""

NO_PORT = 511
"""The port from which frames go nowhere, on either generation."""

Expression = list[Any]
Value = Any
"""A number (a bool is 0 or 1), a Struct, or an extern."""


class Struct:
    """A header or struct: field values by name. A struct that is no header is always valid."""

    def __init__(self, types: dict[str, Any], name: str) -> None:
        self.valid = not types[name]["header"]
        self.bits: dict[str, Any] = types[name]["fields"]
        self.values: dict[str, Value] = {
            field: 0 if isinstance(bits, int) else Struct(types, bits) for field, bits in self.bits.items()
        }

    def numbers(self) -> list[tuple[int, int]]:
        return [(self.values[field], bits) for field, bits in self.bits.items()]


class Packet:
    """Bytes on their way through a parser."""

    def __init__(self, data: bytes) -> None:
        self.rest = data

    def extract(self, header: Struct) -> None:
        """Raise EOFError if the packet ends before the header does."""
        size = sum(bits for _, bits in header.numbers()) // 8
        if len(self.rest) < size:
            raise EOFError
        left = 8 * size
        number = int.from_bytes(self.rest[:size], "big")
        for name, bits in header.bits.items():
            left -= bits
            header.values[name] = number >> left & (1 << bits) - 1
        header.valid = True
        self.rest = self.rest[size:]


def to_bytes(numbers: Sequence[tuple[int, int]]) -> bytes:
    total = width = 0
    for value, bits in numbers:
        total, width = total << bits | value, width + bits
    return total.to_bytes(width // 8, "big")


@dataclass
class Table:
    """Exact entries of a control plane, or the program's own in their order."""

    own: list[Any]
    written: dict[tuple[int, ...], tuple[str, tuple[int, ...]]] = field(default_factory=dict)


class Register(dict[int, Value]):
    """The cells of a register by index. A cell is made when it is first read: there are tens of thousands."""

    def __init__(self, types: dict[str, Any], instance: dict[str, Any]) -> None:
        super().__init__()
        self._types = types
        self._of_type = instance["types"][0]
        self._size = instance["arguments"][0][1]

    def __missing__(self, index: int) -> Value:
        if not 0 <= index < self._size:
            raise IndexError(index)
        cell = Struct(self._types, self._of_type) if isinstance(self._of_type, str) else 0
        self[index] = cell
        return cell


class TnaProgram:
    """A program and its state: tables, registers, counters."""

    def __init__(self, program: dict[str, Any], generation: int) -> None:
        self._program = program
        self._types = self._program["types"]
        self._metadata_bytes = PORT_METADATA_BYTES[generation]
        self.groups: dict[int, list[tuple[int, int]]] = {}
        """(port, replication id) by multicast group."""
        self.tables: dict[str, Table] = {}
        self.registers: dict[str, Register] = {}
        self.counters: dict[str, Counter[int]] = {}
        self.colors: dict[int, int] = {}
        """The color of every meter, by index: green (0) if not here."""
        self.color_of: Callable[[int], int] = lambda index: self.colors.get(index, 0)
        """The function that gives a meter's color; tests may replace it."""
        self.digests: list[list[tuple[int, int]]] = []
        for block in self._program["controls"].values():
            for table in block["tables"].values():
                self.tables[table["name"]] = Table(table["entries"])
            for instance in block["instances"].values():
                if instance["extern"] == "Register":
                    self.registers[instance["name"]] = Register(self._types, instance)
                elif instance["extern"] == "Counter":
                    self.counters[instance["name"]] = Counter()

    def insert(self, table: str, match: tuple[int, ...], action: str, parameters: tuple[int, ...]) -> None:
        self.tables[table].written[match] = (action, parameters)

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        intrinsic = self._new("ingress_intrinsic_metadata_t", ingress_port=port)
        names = {"hdr": self._new("headers_t"), "meta": self._new("metadata_t"), "intrinsic": intrinsic}
        prefix = to_bytes(intrinsic.numbers()) + bytes(self._metadata_bytes)
        fcs = zlib.crc32(frame).to_bytes(FCS_BYTES, "little")
        payload, error = self._parse("MainParser", names, prefix + frame + fcs)
        names |= {
            "from_parser": self._new("ingress_intrinsic_metadata_from_parser_t", parser_err=error),
            "to_deparser": self._new("ingress_intrinsic_metadata_for_deparser_t"),
            "to_tm": self._new("ingress_intrinsic_metadata_for_tm_t"),
        }
        self._run("MainIngress", names)
        out = self._deparse("MainDeparser", names) + payload
        to_tm = names["to_tm"].values
        if names["to_deparser"].values["drop_ctl"] & 1:
            return []
        if to_tm["mcast_grp_a"]:
            copies = self.groups.get(to_tm["mcast_grp_a"], [])
            return [sent for to, rid in copies for sent in self._egress(to, rid, out)]
        if to_tm["ucast_egress_port"] == NO_PORT:
            return []
        if to_tm["bypass_egress"]:
            return [(to_tm["ucast_egress_port"], out[:-FCS_BYTES])]
        return self._egress(to_tm["ucast_egress_port"], 0, out)

    def _egress(self, port: int, rid: int, data: bytes) -> list[tuple[int, bytes]]:
        intrinsic = self._new("egress_intrinsic_metadata_t", egress_port=port, egress_rid=rid)
        names = {"hdr": self._new("egress_headers_t"), "meta": self._new("egress_metadata_t"), "intrinsic": intrinsic}
        payload, error = self._parse("EgressParser", names, to_bytes(intrinsic.numbers()) + data)
        assert error == 0, "ingress made a frame that egress cannot parse"
        names |= {
            "from_parser": self._new("egress_intrinsic_metadata_from_parser_t"),
            "to_deparser": self._new("egress_intrinsic_metadata_for_deparser_t"),
            "to_port": self._new("egress_intrinsic_metadata_for_output_port_t"),
        }
        self._run("MainEgress", names)
        out = self._deparse("EgressDeparser", names) + payload
        return [] if names["to_deparser"].values["drop_ctl"] & 1 else [(port, out[:-FCS_BYTES])]

    def _new(self, name: str, **values: int) -> Struct:
        found = Struct(self._types, name)
        found.values.update(values)
        return found

    def _parse(self, name: str, names: dict[str, Value], data: bytes) -> tuple[bytes, int]:
        """Fill the headers in `names`; return the payload and the parser's error."""
        parser = self._program["parsers"][name]
        packet = Packet(data)
        run = Run(self, parser, {**names, "packet": packet})
        state, error = "start", 0
        try:
            while state not in ("accept", "reject"):
                state = run.state(parser["states"][state])
        except EOFError:
            error = PARSER_ERROR_PARTIAL_HDR
        return packet.rest, error

    def _run(self, name: str, names: dict[str, Value]) -> None:
        control = self._program["controls"][name]
        Run(self, control, names).statement(control["body"])

    def _deparse(self, name: str, names: dict[str, Value]) -> bytes:
        control = self._program["controls"][name]
        run = Run(self, control, {**names, "pkt": None})
        run.statement(control["body"])
        return run.emitted


class Run:
    """One parser or control, over one frame."""

    def __init__(self, program: TnaProgram, block: dict[str, Any], names: dict[str, Value]) -> None:
        self._program = program
        self._block = block
        self._names = dict.fromkeys(block["variables"], 0) | names
        self._bits = {name: bits for name, bits in block["variables"].items() if isinstance(bits, int)}
        self._summed: defaultdict[str, bytes] = defaultdict(bytes)
        """What each checksum unit of a parser has been given."""
        self.emitted = b""

    def state(self, state: dict[str, Any]) -> str:
        """Run a parser's state; return the next one's name."""
        for statement in state["body"]:
            self.statement(statement)
        values = [self.value(one) for one in state["select"]]
        for keys, target in state["cases"]:
            if matches([keys] if keys[0] != "list" else keys[1:], values):
                return str(target)
        return "reject"

    def statement(self, statement: list[Any]) -> None:
        kind, *rest = statement
        if kind == "block":
            for one in rest:
                self.statement(one)
        elif kind == "set":
            self._set(rest[0], self.value(rest[1]))
        elif kind == "if":
            self.statement(rest[1] if self.value(rest[0]) else rest[2])
        elif kind == "do":
            self._call(rest[0])
        elif kind == "let":
            self._names[rest[0]] = 0
            self._bits[rest[0]] = rest[1]
        else:
            raise AssertionError(kind)

    def value(self, expression: Expression) -> Value:
        kind, *rest = expression
        if kind == "const":
            return rest[0]
        if kind == "name":
            return self._names[rest[0]]
        if kind == "field":
            return self.value(rest[0]).values[rest[1]]
        if kind == "slice":
            high, low = (self.value(one) for one in rest[1:])
            return self.value(rest[0]) >> low & (1 << high - low + 1) - 1
        if kind == "not":
            return int(not self.value(rest[0]))
        if kind == "call":
            return self._call(expression)
        if kind == "and":
            return int(bool(self.value(rest[0]) and self.value(rest[1])))
        if kind == "or":
            return int(bool(self.value(rest[0]) or self.value(rest[1])))
        operand = self._compared if kind in ("==", "!=") else self.value
        return ARITHMETIC[kind](operand(rest[0]), operand(rest[1])) & (1 << rest[2]) - 1

    def _compared(self, expression: Expression) -> Value:
        """Return what a comparison takes: a stateful ALU does not cut a sum to its bits there."""
        if expression[0] == "+":
            return self.value(expression[1]) + self.value(expression[2])
        return self.value(expression)

    def _set(self, target: Expression, value: Value) -> None:
        if target[0] == "name":
            bits = self._bits.get(target[1])
            self._names[target[1]] = value if bits is None else value & (1 << bits) - 1
        else:
            struct = self.value(target[1])
            struct.values[target[2]] = value & (1 << struct.bits[target[2]]) - 1

    def _numbers(self, expression: Expression) -> list[tuple[int, int]]:
        """Return (value, bits) of a header's fields, or of a list of fields."""
        if expression[0] != "list":
            found: list[tuple[int, int]] = self.value(expression).numbers()
            return found
        return [(self.value(one), self.value(one[1]).bits[one[2]]) for one in expression[1:]]

    def _call(self, expression: Expression) -> Value:
        _, method, *arguments = expression
        if method[0] == "name":
            if method[1] == "min":
                return min(self.value(arguments[0]), self.value(arguments[1]))
            self._action(method[1], [self.value(argument) for argument in arguments])
            return None
        target, name = method[1], method[2]
        if target[0] == "name" and target[1] in self._block["tables"] and name == "apply":
            self._apply(self._block["tables"][target[1]])
            return None
        if target[0] == "name" and target[1] in self._block["instances"]:
            return self._extern(target[1], name, arguments)
        if name == "extract":
            self._names["packet"].extract(self.value(arguments[0]))
        elif name == "advance":
            self._names["packet"].rest = self._names["packet"].rest[self.value(arguments[0]) // 8 :]
        elif name == "emit":
            header = self.value(arguments[0])
            self.emitted += to_bytes(header.numbers()) if header.valid else b""
        elif name == "isValid":
            return int(self.value(target).valid)
        elif name in ("setValid", "setInvalid"):
            self.value(target).valid = name == "setValid"
        else:
            raise AssertionError(name)
        return None

    def _extern(self, instance_name: str, method: str, arguments: list[Expression]) -> Value:
        instance = self._block["instances"][instance_name]
        kind = instance["extern"]
        if kind == "RegisterAction":
            return self._register_action(instance, self.value(arguments[0]))
        if kind == "Checksum":
            if method == "verify":  # 1 if the sum is wrong: the unit tells an error
                return int(internet_checksum(self._summed[instance_name]) != 0)
            data = to_bytes(self._numbers(arguments[0]))
            if method == "update":
                return internet_checksum(data)
            self._summed[instance_name] += data
            return None
        if kind == "Counter":
            self._program.counters[instance["name"]][self.value(arguments[0])] += 1
        elif kind == "Meter":
            return self._program.color_of(self.value(arguments[0]))
        elif kind == "Digest":
            self._program.digests.append(self._numbers(arguments[0]))
        else:
            raise AssertionError(kind)
        return None

    def _register_action(self, instance: dict[str, Any], index: int) -> Value:
        """Read a cell, run the action's body on it, write it back."""
        cells = self._program.registers[self._block["instances"][instance["arguments"][0][1]]["name"]]
        cell, result = instance["parameters"]
        outer = {name: self._names.get(name) for name in (cell, result)}
        self._names |= {cell: cells[index], result: 0}
        self.statement(instance["body"])
        cells[index] = self._names[cell]
        found = self._names[result]
        self._names |= outer
        return found

    def _apply(self, table: dict[str, Any]) -> None:
        values = [self.value(key) for key, _ in table["keys"]]
        rows = self._program.tables[table["name"]]
        for keys, call in rows.own:
            if matches(keys, values):
                self._call(call)
                return
        if (entry := rows.written.get(tuple(values))) is not None:
            name = next(name for name, action in self._block["actions"].items() if action["name"] == entry[0])
            self._action(name, list(entry[1]))
        elif table["default"] is not None:
            self._call(table["default"])

    def _action(self, name: str, arguments: list[Value]) -> None:
        action = self._block["actions"][name]
        assert len(action["parameters"]) == len(arguments), name
        self._names |= dict(zip(action["parameters"], arguments, strict=True))
        self.statement(action["body"])


ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "|": operator.or_,
    "==": operator.eq,
    "!=": operator.ne,
}


def matches(keys: Sequence[Expression], values: Sequence[int]) -> bool:
    """Whether an entry's or a case's keys take these values; one "any" takes all of them."""
    if len(keys) == 1 and keys[0][0] == "any":
        return True
    for key, value in zip(keys, values, strict=True):
        if key[0] == "const" and key[1] != value:
            return False
        if key[0] == "mask" and key[1][1] & key[2][1] != value & key[2][1]:
            return False
    return True

"""Random programs of one action, in BMv2's JSON, and what they compute, in Python's integers.

Each result is a random expression over fields of one width; `Model` walks over the JSON's expressions. Numbers are as
wide as they need to be until they are stored, as in BMv2. Operands that decide nothing are not computed, so they cannot
fail: those of `and`, `or` and `?`, what is shifted by more than WIDEST_SHIFT, and what is written to a register cell
that does not exist.
"""

from __future__ import annotations

import json
import operator
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from p4reduce_switch.program import ExecutionError, Program, UnsupportedConstructError
from p4reduce_switch.program.ir.intervals import WIDEST_SHIFT

BASE = Path(__file__).resolve().parents[1] / "conformance/programs/casts.json"
WIDTHS = (1, 2, 7, 8, 9, 16, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129, 191, 192, 193, 256, 257, 512, 1000, 1024)
ARITHMETIC, SHIFTS, DIVISIONS = ("+", "-", "*", "&", "|", "^"), ("<<", ">>"), ("/", "%")
COMPARISONS = ("==", "!=", "<", ">", "<=", ">=")
CELLS = 4
Json = dict[str, Any]
Values = dict[str, int]

# ---- what they compute

PLAIN = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


def wrapped(value: int, bits: int, signed: bool) -> int:
    """The low bits of a value, read with or without a sign."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> bits - 1 else value


def clamped(value: int, bits: int, signed: bool) -> int:
    """The value that is nearest among those of so many bits."""
    low = -(1 << bits - 1) if signed else 0
    return max(low, min(low + (1 << bits) - 1, value))


def evaluate(node: Json, fields: Mapping[str, int]) -> int:
    """The value of an expression; `fields` are those of the header h. ExecutionError for a division by 0 or less."""
    if node["type"] == "hexstr":
        return int(node["value"], 16)
    if node["type"] == "field":
        return fields[node["value"][1]]
    found = node["value"]
    match found["op"]:
        case "and":
            return evaluate(found["left"], fields) and evaluate(found["right"], fields)
        case "or":
            return evaluate(found["left"], fields) or evaluate(found["right"], fields)
        case "not":
            return not evaluate(found["right"], fields)
        case "?":
            return evaluate(found["left" if evaluate(found["cond"], fields) else "right"], fields)
        case "<<" | ">>":
            return _shifted(found, fields)
    b = evaluate(found["right"], fields)
    if found["left"] is None:
        return ~b if found["op"] == "~" else -b
    a = evaluate(found["left"], fields)
    match found["op"]:
        case "two_comp_mod":
            return wrapped(a, b, True)
        case "sat_cast" | "usat_cast":
            return clamped(a, b, found["op"] == "sat_cast")
        case "/" | "%":
            if b <= 0:
                raise ExecutionError(f"division by {b}: P4 defines it for positive divisors only")
            return a // b if found["op"] == "/" else a % b
    return int(PLAIN[found["op"]](a, b))


def _shifted(found: Json, fields: Mapping[str, int]) -> int:
    by = evaluate(found["right"], fields)
    if by < 0 or (found["op"] == "<<" and by > WIDEST_SHIFT):
        return 0
    value = evaluate(found["left"], fields)
    return value << by if found["op"] == "<<" else value >> by


class Model:
    """A program of `random_expressions`: one action over the header h, and the register cells."""

    def __init__(self, config: Json) -> None:
        self.fields = [tuple(field) for field in config["header_types"][2]["fields"]]
        self.primitives = config["actions"][0]["primitives"]
        (cells,) = config["register_arrays"]
        self.cells, self.bits = [0] * cells["size"], cells["bitwidth"]

    def process(self, frame: bytes) -> bytes:
        """The frame that leaves. ExecutionError as for `evaluate`; what was written to cells before stays."""
        values = self._parsed(frame)
        kinds = {name: (bits, signed) for name, bits, signed in self.fields}
        for primitive in self.primitives:
            target, *operands = primitive["parameters"]
            if primitive["op"] == "assign" and target["value"][0] == "h":
                name = target["value"][1]
                values[name] = wrapped(evaluate(operands[0], values), *kinds[name])
            elif primitive["op"] == "register_write":
                index = evaluate(operands[0], values)
                if 0 <= index < len(self.cells):
                    self.cells[index] = wrapped(evaluate(operands[1], values), self.bits, False)
            elif primitive["op"] == "register_read":
                index, name = evaluate(operands[1], values), target["value"][1]
                if 0 <= index < len(self.cells):
                    values[name] = wrapped(self.cells[index], *kinds[name])
        number = 0
        for name, bits, _ in self.fields:
            number = number << bits | wrapped(values[name], bits, False)
        return number.to_bytes(len(frame), "big")

    def _parsed(self, frame: bytes) -> Values:
        number, left = int.from_bytes(frame, "big"), 8 * len(frame)
        values = {}
        for name, bits, signed in self.fields:
            left -= bits
            values[name] = wrapped(number >> left, bits, signed)
        return values


# ---- programs


def hexstr(number: int) -> Json:
    """A constant."""
    return {"type": "hexstr", "value": hex(number)}


def field(header: str, name: str) -> Json:
    """The value of a field."""
    return {"type": "field", "value": [header, name]}


def repeated(word: int, bits: int) -> int:
    """A number of so many bits whose 32-bit words are all this one."""
    return ((1 << bits + 32) - 1) // 0xFFFFFFFF * word & (1 << bits) - 1


def apply(op: str, left: Json | None, right: Json, **more: Json) -> Json:
    """An operation."""
    return {"type": "expression", "value": {"op": op, "left": left, "right": right, **more}}


class Expressions:
    """Makes expressions over fields of `width` bits."""

    def __init__(self, source: random.Random, width: int) -> None:
        self.source = source
        self.width = width

    def constant(self) -> Json:
        bits = self.source.choice((1, 3, self.width, self.width, self.width + 1))
        edges = (0, 1, (1 << bits) - 1, 1 << bits - 1, self.source.getrandbits(bits))
        return hexstr(self.source.choice(edges))

    def leaf(self) -> Json:
        if self.source.random() < 0.2:
            return self.constant()
        return {"type": "field", "value": ["h", self.source.choice("abcdabcdstu")]}

    def amount(self) -> Json:
        """Return an expression to shift by: mostly less than the width, sometimes any number."""
        draw = self.source.random()
        if draw < 0.4:
            return hexstr(self.source.randrange(self.width + 2))
        return {"type": "field", "value": ["h", self.source.choice("ssstu")]}

    def masked(self, value: Json) -> Json:
        bits = self.source.choice((self.width, self.width, self.width + 1, max(1, self.width // 2)))
        words = self.source.choice((0xFFFFFFFF, 0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, 1))
        return apply("&", value, hexstr(repeated(words, bits) if bits > 64 else (1 << bits) - 1))

    def data(self, depth: int) -> Json:
        if depth == 0:
            return self.leaf()
        draw, below = self.source.random(), depth - 1
        if draw < 0.1:
            return apply(self.source.choice("++^|"), self.masked(self.data(below)), self.masked(self.data(below)))
        if draw < 0.45:
            return apply(self.source.choice(ARITHMETIC), self.data(below), self.data(below))
        if draw < 0.6:
            value = self.data(below) if self.source.random() < 0.5 else self.masked(self.data(below))
            return apply(self.source.choice(SHIFTS), value, self.amount())
        if draw < 0.7:
            return apply(self.source.choice(DIVISIONS), self.masked(self.data(below)), self.masked(self.data(below)))
        if draw < 0.75:
            return apply("~", None, self.data(below))
        if draw < 0.8:
            return apply("-", None, self.data(below))
        if draw < 0.88:
            cast = self.source.choice(("two_comp_mod", "sat_cast", "usat_cast"))
            return apply(cast, self.data(below), hexstr(self.source.choice((self.width, self.width + 3, 5, 64, 128))))
        if draw < 0.93:
            return self.masked(self.data(below))
        return apply("?", self.data(below), self.data(below), cond=self.condition(below))

    def condition(self, depth: int) -> Json:
        below = max(0, depth - 1)
        draw = self.source.random()
        if depth == 0 or draw < 0.6:
            return apply(self.source.choice(COMPARISONS), self.data(below), self.data(below))
        if draw < 0.75:
            return apply("not", None, self.condition(below))
        return apply(self.source.choice(("and", "or")), self.condition(below), self.condition(below))


def program(seed: int, width: int, results: int = 8) -> tuple[Json, int]:
    """(a program, the bytes of its header)."""
    source = random.Random(f"{seed} {width}")
    expressions = Expressions(source, width)
    widths = [source.choice((width, width, width + 1, 16, 64, 128, 200)) for _ in range(results)]
    signs = [bits > 1 and source.random() < 0.4 for bits in widths]
    fields = [("a", width, False), ("b", width, False), ("c", width, width > 1), ("d", width, width > 1)]
    fields += [("s", 9, False), ("t", 32, False), ("u", 7, True)]
    fields += [(f"r{number}", bits, sign) for number, (bits, sign) in enumerate(zip(widths, signs, strict=True))]
    bits = sum(field[1] for field in fields)
    if bits % 8:
        fields.append(("pad", 8 - bits % 8, False))
    primitives = []
    for number, (size, sign) in enumerate(zip(widths, signs, strict=True)):
        value = expressions.data(source.randint(1, 4))
        cut = apply("two_comp_mod", value, hexstr(size)) if sign else apply("&", value, hexstr((1 << size) - 1))
        primitives.append(assign(["h", f"r{number}"], cut))
        if number % 3 == 2:  # what follows reads them, wherever their values are now
            moved = expressions.data(source.choice((0, 0, 2)))
            primitives.append(assign(["h", source.choice("ab")], apply("&", moved, hexstr((1 << width) - 1))))
    cell, place = {"type": "register_array", "value": "cells"}, hexstr(source.randrange(CELLS + 1))
    value = apply("&", expressions.data(2), hexstr((1 << width) - 1))
    primitives.append({"op": "register_write", "parameters": [cell, {"type": "field", "value": ["h", "s"]}, value]})
    target = {"type": "field", "value": ["h", source.choice("abcd")]}
    primitives.append({"op": "register_read", "parameters": [target, cell, place]})
    primitives.append(assign(["standard_metadata", "egress_spec"], hexstr(1)))
    config: Json = json.loads(BASE.read_text())
    config["header_types"][2]["fields"] = [list(field) for field in fields]
    config["register_arrays"] = [{"name": "cells", "id": 0, "size": CELLS, "bitwidth": width}]
    config["actions"][0]["primitives"] = primitives
    return config, sum(field[1] for field in fields) // 8


def assign(target: list[str], value: Json) -> Json:
    return {"op": "assign", "parameters": [{"type": "field", "value": target}, value]}


def frames(seed: int, length: int, count: int) -> list[bytes]:
    """Frames whose fields are often at their edges: runs of ones or zeros among random bytes."""
    source = random.Random(f"frames {seed}")
    made = []
    for _ in range(count):
        frame = bytearray(source.randbytes(length))
        for _ in range(source.randint(0, 6)):
            start = source.randrange(length)
            end = min(length, start + source.choice((1, 2, 8, 40, length)))
            frame[start:end] = source.choice((b"\0", b"\xff", b"\x80", b"\x7f")) * (end - start)
        made.append(bytes(frame))
    return made


def differences(seed: int, width: int, count: int) -> int | None:
    """Return how many frames the program answers otherwise than the model; None for a program that is refused."""
    config, length = program(seed, width)
    try:
        compiled = Program(config)
    except UnsupportedConstructError:
        return None
    model, different = Model(config), 0
    for frame in frames(seed, length, count):
        try:
            expected: object = [(1, model.process(frame))]
        except ExecutionError as error:
            expected = str(error)
        try:
            found: object = compiled.process(1, frame)
        except ExecutionError as error:
            found = str(error)
        different += found != expected
    cells = [compiled.registers["cells"].read(index) for index in range(CELLS)]
    return different + (cells != model.cells)

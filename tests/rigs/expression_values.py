"""What the programs of `random_expressions` compute, in Python's integers: a walk over the JSON's expressions.

Numbers are as wide as they need to be until they are stored, as in BMv2. Operands that decide nothing are not
computed, so they cannot fail: those of `and`, `or` and `?`, what is shifted by more than WIDEST_SHIFT, and what is
written to a register cell that does not exist.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from p4reduce_switch.program import ExecutionError
from p4reduce_switch.program.ir.intervals import WIDEST_SHIFT

Json = dict[str, Any]
Values = dict[str, int]

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

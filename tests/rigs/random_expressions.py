"""Random programs of one action, in BMv2's JSON: each result is a random expression over fields of one width.

`python tests/rigs/random_expressions.py --programs 1000` compares programs with their model for longer than the tests.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

from p4reduce_switch.program import ExecutionError, Program, UnsupportedConstructError
from rigs.expression_values import Model

BASE = Path(__file__).resolve().parents[1] / "conformance/programs/casts.json"
WIDTHS = (1, 2, 7, 8, 9, 16, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129, 191, 192, 193, 256, 257, 512, 1000, 1024)
ARITHMETIC, SHIFTS, DIVISIONS = ("+", "-", "*", "&", "|", "^"), ("<<", ">>"), ("/", "%")
COMPARISONS = ("==", "!=", "<", ">", "<=", ">=")
CELLS = 4
Json = dict[str, Any]


def hexstr(number: int) -> Json:
    """A constant."""
    return {"type": "hexstr", "value": hex(number)}


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
        """What to shift by: mostly less than the width, sometimes anything."""
        draw = self.source.random()
        if draw < 0.4:
            return hexstr(self.source.randrange(self.width + 2))
        return {"type": "field", "value": ["h", self.source.choice("ssstu")]}

    def masked(self, value: Json) -> Json:
        bits = self.source.choice((self.width, self.width, self.width + 1, max(1, self.width // 2)))
        return apply("&", value, hexstr((1 << bits) - 1))

    def data(self, depth: int) -> Json:
        if depth == 0:
            return self.leaf()
        draw, below = self.source.random(), depth - 1
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
    """How many frames the program answers otherwise than the model; None for a program that is refused."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--frames", type=int, default=50)
    parser.add_argument("--first", type=int, default=1000)
    given = parser.parse_args()
    ran = wrong = 0
    for seed in range(given.first, given.first + given.programs):
        width = WIDTHS[seed % len(WIDTHS)]
        found = differences(seed, width, given.frames)
        ran += found is not None
        if found:
            wrong += 1
            print(f"seed {seed}, width {width}: {found} of {given.frames} frames differ", flush=True)
    print(f"{ran} programs, {wrong} with differences")


if __name__ == "__main__":
    main()

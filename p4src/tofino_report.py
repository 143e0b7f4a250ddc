"""What the TNA program takes of its chip: one small report from the assembly and the compiler's resources.json.

The compiler accepts what no chip can do: a register that two tables use it places twice, and p4c 1.2.5.16 without a
later fix drops what a parser selects on. Both show in the assembly, where `register_stages` and `missing_selects`
look.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Node = dict[str, Any]

SECTION = re.compile(r"(?:stage (?P<stage>\d+)|(?P<part>phv|parser|deparser)) (?P<gress>ingress|egress)\b")
P4_NAME = re.compile(r"\s+p4: \{ name: (?P<name>[^ ,}]+)")
MATCH_KEY = re.compile(r"\s+(?P<key>0[xob][0-9a-f*]+):$")
CONTAINER = re.compile(r"\b(?P<kind>[TMD]?[BHW])\d+")
UNITS = {
    "meter_alus": ("meter_alus", "meters"),
    "statistics_alus": ("statistic_alus", "stats"),
    "sram": ("rams", "srams"),
    "map_ram": ("map_rams", "maprams"),
    "tcam": ("tcams", "tcams"),
    "gateways": ("gateways", "gateways"),
    "logical_tables": ("logical_tables", "ids"),
}
"""The units of a stage, and where resources.json lists those in use. Registers run on meter ALUs."""


def sections(assembly: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (part, gress, lines) of each section; a stage's part is its number."""
    heading: tuple[str, str] | None = None
    lines: list[str] = []
    for line in [*assembly.splitlines(), "end:"]:
        if line[:1].isspace() or not line:
            lines.append(line)
            continue
        if heading is not None:
            yield *heading, lines
        found = SECTION.match(line)
        heading = None if found is None else (found["stage"] or found["part"], found["gress"])
        lines = []


def register_stages(assembly: str) -> dict[str, list[int]]:
    """Return the stages that hold each register, by its P4 name: more than one, and it is several registers."""
    found: dict[str, list[int]] = {}
    for part, _, lines in sections(assembly):
        for line, below in zip(lines, lines[1:], strict=False):
            if line.startswith("  stateful "):
                name = P4_NAME.match(below)
                if name is None:
                    raise ValueError(f"no P4 name under {line.strip()!r}")
                found.setdefault(name["name"], []).append(int(part))
    return dict(sorted(found.items()))


def stages_used(assembly: str, gress: str) -> int:
    """Return the number of stages up to the last one with a table."""
    parts = [part for part, of, lines in sections(assembly) if of == gress and any("p4: {" in line for line in lines)]
    return 1 + max((int(part) for part in parts if part.isdigit()), default=-1)


def containers(assembly: str) -> dict[str, int]:
    """Return how many PHV containers hold something, by kind: bits, with T for tagalong, M for mocha, D for dark."""
    used = {
        found[0]: found["kind"]
        for part, _, lines in sections(assembly)
        if part == "phv"
        for line in lines
        if ":" in line
        for found in CONTAINER.finditer(line.split("#")[0].rsplit(":", 1)[1])
    }
    kinds = list(used.values())
    return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


def match_keys(assembly: str, gress: str) -> list[tuple[int, int]]:
    """Return (value, mask) of every key that the parser matches on, but for those that match all."""
    (lines,) = (lines for part, of, lines in sections(assembly) if part == "parser" and of == gress)
    found = []
    for line in lines:
        if key := MATCH_KEY.match(line):
            bits = {"x": 4, "o": 3, "b": 1}[key["key"][1]]
            value = mask = 0
            for digit in key["key"][2:]:
                value = value << bits | (0 if digit == "*" else int(digit, 16))
                mask = mask << bits | (0 if digit == "*" else (1 << bits) - 1)
            found.append((value, mask))
    return found


def missing_selects(program: Node, parser: str, assembly: str, gress: str) -> list[str]:
    """Return what the P4 parser selects on (front_end.json's program) and the assembly does not.

    A case is found in a key that compares as many bits as the case does, and has each field's value somewhere.
    """
    keys = match_keys(assembly, gress)
    missing = []
    for name, state in program["parsers"][parser]["states"].items():
        widths = [_bits(program, parser, expression) for expression in state.get("select", [])]
        for keyset, target in state.get("cases", []):
            fields = keyset[1:] if keyset[0] == "list" else [keyset]
            expected = [] if fields == [["any"]] else [_value(*pair) for pair in zip(fields, widths, strict=True)]
            if not any(mask for _, mask in expected):
                continue
            key = next((key for key in keys if _holds(key, expected)), None)
            if key is None:
                missing.append(f"{name}: {[value for value, _ in expected]} to {target}")
            else:
                keys.remove(key)
    return missing


def _value(field: list[Any], bits: int) -> tuple[int, int]:
    """Return (value, mask) of one field of a case."""
    if field[0] == "const":
        return field[1], (1 << bits) - 1
    if field[0] == "mask":
        return field[1][1] & field[2][1], field[2][1]
    return 0, 0


def _holds(key: tuple[int, int], expected: list[tuple[int, int]]) -> bool:
    value, mask = key
    return mask.bit_count() == sum(bits.bit_count() for _, bits in expected) and all(
        any(mask >> at & bits == bits and value >> at & bits == field for at in range(mask.bit_length()))
        for field, bits in expected
    )


def _bits(program: Node, parser: str, expression: list[Any]) -> int:
    """Bits of a field or of a slice of one."""
    if expression[0] == "slice":
        return int(expression[2][1]) - int(expression[3][1]) + 1
    return int(_type(program, parser, expression))


def _type(program: Node, parser: str, expression: list[Any]) -> Any:
    if expression[0] == "name":
        return program["parsers"][parser]["parameters"][expression[1]]
    return program["types"][_type(program, parser, expression[1])]["fields"][expression[2]]


def report(assembly: str, resources: Node) -> Node:
    """Return the report that is checked in."""
    mau = resources["resources"]["mau"]
    stages = []
    for stage in mau["mau_stages"]:
        used = {unit: len(stage[group][listed]) for unit, (group, listed) in UNITS.items()}
        stages.append({"stage": stage["stage_number"]} | used)
    rows = {
        gress: len({state["tcam_row"] for one in parsers for state in one["states"]})
        for gress in ("ingress", "egress")
        if (parsers := [one for one in resources["resources"]["parser"]["parsers"] if one["gress"] == gress])
    }
    return {
        "stages": {gress: stages_used(assembly, gress) for gress in ("ingress", "egress")},
        "by_stage": stages,
        "containers": containers(assembly),
        "parser_rows": rows,
        "registers": register_stages(assembly),
    }

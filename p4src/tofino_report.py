"""What the TNA program takes of its chip: one small report from the assembly and the compiler's resources.json.

The compiler accepts what no chip can do: a register that two tables use it places twice. It shows in the assembly,
where `register_stages` looks. What p4c drops of what a parser selects on (docs/tofino.md) shows as fewer `parser_rows`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Node = dict[str, Any]

SECTION = re.compile(r"(?:stage (?P<stage>\d+)|(?P<part>phv|parser|deparser)) (?P<gress>ingress|egress)\b")
P4_NAME = re.compile(r"\s+p4: \{ name: (?P<name>[^ ,}]+)")
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

"""An IPv4 router, examples/l3_switch: it drops frames with a wrong header checksum."""

from __future__ import annotations

from pathlib import Path

from p4reduce_switch.program import Program
from rigs.entries import insert

EXAMPLE = Path(__file__).parents[3] / "examples/l3_switch/l3_switch.json"


def router() -> Program:
    """The program with one route, for all addresses."""
    program = Program(EXAMPLE.read_bytes())
    insert(program.tables["MainIngress.routes"], ((0, 0),), "MainIngress.forward", (1, 2, 3))
    return program

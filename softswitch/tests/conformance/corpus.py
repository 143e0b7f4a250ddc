"""Every case there is: those of the small programs are their recordings, those of the project's program are made."""

from __future__ import annotations

import functools

from conformance import protocol_rows, random_traffic, recording, table_rows
from conformance.case import PROGRAMS, Case, Step

OTHER_PROGRAM = {
    "direct_meter_colors": "direct_meter",
    "meter_colors": "indirect_meter",
    "selector_handles": "action_selector",
    "selector_one_shot": "action_selector",
    "selector_watch_ports": "action_selector",
    "signed_register_cell": "state",
}
"""Cases of a small program that has not their name."""
GROUPS = (
    *("arithmetic", "checksums", "copies", "hashes", "l2", "loops", "signed_register_cell", "stack", "state"),
    *("tables", "unions", "varbit", "wide"),
)
"""Cases of the programs that hold a group of constructs each."""


def small_case(name: str, steps: tuple[Step, ...]) -> Case:
    """A case of one of the programs in programs/."""
    stem = PROGRAMS / OTHER_PROGRAM.get(name, name)
    return Case(name, stem.with_suffix(".json"), stem.with_suffix(".p4info.txtpb"), steps)


@functools.cache
def small_programs() -> dict[str, Case]:
    """Cases of the programs in programs/, by name."""
    names = (name for name in recording.names() if name not in p4reduce_program())
    return {name: small_case(name, recording.load(name).steps) for name in names}


@functools.cache
def p4reduce_program() -> dict[str, Case]:
    """Cases of the project's own program, by name."""
    return {case.name: case for module in (protocol_rows, random_traffic, table_rows) for case in module.cases()}


@functools.cache
def all_cases() -> dict[str, Case]:
    """Every case, by name."""
    return small_programs() | p4reduce_program()

"""Every case there is: the steps of its recording, for its program."""

from __future__ import annotations

import functools

from conformance import recording
from conformance.case import ARTIFACTS, PROGRAMS, Case, Step

OTHER_PROGRAM = {
    "direct_meter_colors": "direct_meter",
    "meter_colors": "indirect_meter",
    "selector_handles": "action_selector",
    "selector_one_shot": "action_selector",
    "selector_watch_ports": "action_selector",
    "signed_register_cell": "state",
}
"""Cases of a small program that has not their name."""
OWN = "p4reduce_"
"""The first word of the cases of p4reduce's program, before its geometry. `tests/rigs/recorded` makes their steps."""
GROUPS = (
    *("arithmetic", "checksums", "copies", "hashes", "l2", "loops", "signed_register_cell", "stack", "state"),
    *("tables", "unions", "varbit", "wide"),
)
"""Cases of the programs that hold a group of constructs each."""


def case_of(name: str, steps: tuple[Step, ...]) -> Case:
    """A case of one of the programs in programs/, or of p4reduce's."""
    if name.startswith(OWN):
        stem = ARTIFACTS / name.split("_")[1] / "p4reduce"
    else:
        stem = PROGRAMS / OTHER_PROGRAM.get(name, name)
    return Case(name, stem.with_suffix(".json"), stem.with_suffix(".p4info.txtpb"), steps)


@functools.cache
def all_cases() -> dict[str, Case]:
    """Every case, by name."""
    return {name: case_of(name, recording.load(name).steps) for name in recording.names()}


def small_programs() -> dict[str, Case]:
    """Cases of the programs in programs/, by name."""
    return {name: case for name, case in all_cases().items() if not name.startswith(OWN)}

"""Large programs: how long they compile is bounded by their size, and the log says that they are compiled."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from conformance.case import PROGRAMS
from p4reduce_switch.program import Program, UnsupportedConstructError
from p4reduce_switch.program.llvm import build
from p4reduce_switch.program.llvm.emitter import MAX_INSTRUCTIONS

pytestmark = pytest.mark.slow


def applied(tables: int, primitives: int) -> dict[str, Any]:
    """A program of as many tables, which all run one action of as many primitives: in_.a = in_.a + 1."""
    config: dict[str, Any] = json.loads((PROGRAMS / "arithmetic.json").read_text())
    a = {"type": "field", "value": ["in_", "a"]}
    one = {"type": "hexstr", "value": "0x1"}
    more = {"type": "expression", "value": {"op": "+", "left": a, "right": one}}
    value = {"type": "expression", "value": {"op": "&", "left": more, "right": {"type": "hexstr", "value": "0xff"}}}
    assign = {"op": "assign", "parameters": [a, {"type": "expression", "value": value}]}
    config["actions"] = [{"name": "run", "id": 0, "runtime_data": [], "primitives": [assign] * primitives}]
    ingress, egress = config["pipelines"]
    egress |= {"tables": [], "conditionals": [], "init_table": None}
    names = [f"t{number}" for number in range(tables)]
    (shape, *_) = ingress["tables"]
    default = {"action_id": 0, "action_const": True, "action_data": [], "action_entry_const": True}
    ingress |= {
        "conditionals": [],
        "init_table": "t0",
        "tables": [
            shape
            | {"name": name, "id": number, "action_ids": [0], "actions": ["run"], "default_entry": default}
            | {"base_default_next": after, "next_tables": {"run": after}}
            for number, (name, after) in enumerate(zip(names, [*names[1:], None], strict=True))
        ],
    }
    return config


@pytest.mark.fault(
    "a pipeline that would compile for long, also a small JSON whose tables share a long action: refused beyond "
    "100,000 instructions"
)
def test_the_size_is_that_of_the_machine_code_not_of_the_pipeline() -> None:
    """Actions are written in place: the tables of a pipeline may each have all of an action."""
    with pytest.raises(UnsupportedConstructError, match=r"a program of more than 100,000 instructions"):
        Program(applied(300, 300))


def test_a_program_that_is_compiled_is_logged_with_its_size(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "cache_folder", lambda: None)
    with caplog.at_level(logging.INFO):
        program = Program(applied(20, 100))
    assert program.process(1, bytes(12))
    logged = {record.getMessage(): record.__dict__["p4reduce_fields"] for record in caplog.records}
    assert list(logged) == ["compiling program", "program compiled"]
    sizes = {fields["instructions"] for fields in logged.values()}
    assert len(sizes) == 1 and 20 * 100 < sizes.pop() < MAX_INSTRUCTIONS
    assert logged["program compiled"]["seconds"] >= 0

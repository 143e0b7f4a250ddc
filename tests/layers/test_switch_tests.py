"""The tests of the embedded switch import its package, the runtime, and themselves: no other package of the house."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[2] / "softswitch" / "tests"
OTHERS = {"p4reduce", "p4reduce_contracts", "p4reduce_controller", "p4reduce_lab", "p4reduce_testbed"}


def imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_switchs_tests_import_nothing_of_the_other_packages_and_no_rig_of_theirs() -> None:
    rigs = {file.stem for file in (TESTS / "rigs").glob("*.py")}
    files = list(TESTS.rglob("*.py"))
    assert len(files) > 80 and len(rigs) > 10
    for file in files:
        for name in imported(file):
            root, _, inner = name.partition(".")
            assert root not in OTHERS, f"{file}: {name}"
            assert root != "rigs" or inner.partition(".")[0] in rigs, f"{file}: {name} is a rig of tests/"

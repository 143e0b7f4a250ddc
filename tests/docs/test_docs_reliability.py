"""The list of faults that `pytest --collect-only -m fault` prints: every marker has a text."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def is_fault(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "fault" and ast.unparse(node) == "pytest.mark.fault"


def test_every_marker_of_a_fault_has_a_text_with_fault_and_outcome() -> None:
    texts: dict[str, str] = {}
    for file in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if is_fault(node):
                texts.setdefault(f"{file}:{node.lineno}", "")
            if isinstance(node, ast.Call) and is_fault(node.func):
                texts[f"{file}:{node.lineno}"] = ast.literal_eval(node.args[0]) if len(node.args) == 1 else ""
    assert len(texts) >= 100
    for place, text in texts.items():
        fault, colon, outcome = text.partition(": ")
        assert fault.strip() and colon and outcome.strip(), f'{place}: write fault("what happens: what comes of it")'
    assert len(set(texts.values())) == len(texts), "a fault has more than one test"

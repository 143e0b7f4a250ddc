"""docs/reliability.toml: every fault names a test that exists, and the page of tables is generated from it."""

from __future__ import annotations

import ast
import re
import runpy
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/reliability.toml").read_text(encoding="utf-8")
FAULTS = [fault for section in tomllib.loads(TEXT)["section"] for fault in section["fault"]]
KEYS = {"fault", "outcome", "recovery", "wrong_sums", "tried", "test"}
NAMED = re.compile(r"(tests/[\w/]+\.py)::(\w+)")


def test_every_fault_has_all_values_and_a_test() -> None:
    assert len(FAULTS) >= 40
    for fault in FAULTS:
        assert fault.keys() - {"gradients_lost"} == KEYS, fault
        assert all(isinstance(value, str) and value and "|" not in value for value in fault.values()), fault
        assert NAMED.fullmatch(fault["test"]), fault


def test_every_named_test_exists() -> None:
    for file, name in NAMED.findall(TEXT):
        tree = ast.parse((ROOT / file).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file} has no {name}"


def test_no_fault_loses_gradients_or_makes_wrong_sums() -> None:
    for fault in FAULTS:
        assert fault.get("gradients_lost", "0") in ("0", "-"), fault
        assert re.fullmatch(r"0( of [\d,]+)?|-|none given", fault["wrong_sums"]), fault


def test_the_page_is_generated_from_the_data() -> None:
    page = runpy.run_path(str(ROOT / "tools/reliability.py"))["page"]
    assert (ROOT / "docs/reliability-table.md").read_text(encoding="utf-8") == page(TEXT), "run `make reports`"


def test_the_figures_of_the_soak_are_generated_from_its_results() -> None:
    with_soak = runpy.run_path(str(ROOT / "tools/reliability.py"))["with_soak"]
    text = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
    assert with_soak(text, (ROOT / "docs/soak.json").read_text(encoding="utf-8")) == text, "run `make reports`"

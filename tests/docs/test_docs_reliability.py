"""docs/reliability.md: a row a fault, and each names a test that there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reliability.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
HEADINGS = ["what happens", "time to recover", "gradients lost", "wrong sums", "tried", "test"]


def rows() -> list[list[str]]:
    """The cells of every row of every table of faults, headings left out."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [cells for cells in table if cells[1:] != HEADINGS and len(cells) > 3]


def test_there_are_enough_rows_and_each_names_its_test() -> None:
    assert len(rows()) >= 40
    for cells in rows():
        assert len(cells) == 1 + len(HEADINGS), cells
        assert all(cells), f"an empty cell: {cells}"
        assert NAMED.fullmatch(cells[-1]), f"no test: {cells}"


def test_every_named_test_exists() -> None:
    for file, name in NAMED.findall(PAGE):
        tree = ast.parse((ROOT / file).read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file} has no {name}"


def test_no_fault_of_the_table_loses_gradients_or_makes_wrong_sums() -> None:
    for cells in rows():
        assert cells[3] in ("0", "-"), cells
        assert re.fullmatch(r"0( of [\d,]+)?|-|none given", cells[4]), cells

"""Write docs/reliability-table.md from docs/reliability.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
DATA = DOCS / "reliability.toml"
PAGE = DOCS / "reliability-table.md"
COLUMNS = {
    "fault": "fault",
    "outcome": "outcome",
    "recovery": "time to recover",
    "gradients_lost": "gradients lost",
    "wrong_sums": "wrong sums",
    "tried": "tried",
    "test": "test",
}


def page(data: str) -> str:
    """Return the page for the text of reliability.toml: a section a table, a fault a row."""
    parts = [
        "<!-- Generated from reliability.toml by `make reports`. -->\n\n# Table of failure modes\n\n"
        "[Failure modes](reliability.md) explains the columns.\n"
    ]
    for section in tomllib.loads(data)["section"]:
        rows = [_row([fault.get(key, "0") for key in COLUMNS]) for fault in section["fault"]]
        head = [_row(list(COLUMNS.values())), _row(["---"] * len(COLUMNS))]
        parts.append("\n".join([f"## {section['title']}\n", *head, *rows]) + "\n")
    return "\n".join(parts)


def _row(cells: list[str]) -> str:
    *others, last = cells
    return f"| {' | '.join(others)} | {f'`{last}`' if '::' in last else last} |"


if __name__ == "__main__":
    PAGE.write_text(page(DATA.read_text(encoding="utf-8")), encoding="utf-8")

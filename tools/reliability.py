"""Write docs/reliability-table.md from docs/reliability.toml, and the soak in docs/reliability.md from docs/soak.json.

docs/soak.json is out/soak/results.json of `make soak`.
"""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"
DATA = DOCS / "reliability.toml"
PAGE = DOCS / "reliability-table.md"
SOAK_DATA, SOAK_PAGE = DOCS / "soak.json", DOCS / "reliability.md"
SOAK_BEGINS, SOAK_ENDS = (
    "<!-- Generated from soak.json by `make reports`. -->\n",
    "<!-- End of what is generated. -->\n",
)
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


def with_soak(text: str, data: str) -> str:
    """Return the text of reliability.md with the figures of soak.json in it. ValueError if it has no place for them."""
    before, begins, rest = text.partition(SOAK_BEGINS)
    _, ends, after = rest.partition(SOAK_ENDS)
    if not begins or not ends:
        raise ValueError(
            f"{SOAK_PAGE.name} has no lines {SOAK_BEGINS!r} and {SOAK_ENDS!r}; put them where the soak belongs"
        )
    return f"{before}{begins}\n{_soak(json.loads(data))}\n{ends}{after}"


def _soak(legs: list[dict[str, Any]]) -> str:
    """Return the table of a soak's figures, of all legs together."""
    right, jobs, frames, kills, ends = (
        sum((Counter(leg[name]) for leg in legs), Counter()) for name in ("right", "jobs", "frames", "kills", "ends")
    )
    passed = frames["frames up"] + frames["frames down"]
    fates = ", ".join(f"{name} {frames[name]:,}" for name in ("dropped", "duplicated", "late", "flipped"))
    kinds = sum(count for kind, count in right.items() if kind.startswith("compressor"))
    rows = [
        ("legs, seeds", f"{len(legs)}, {legs[0]['seed']} to {legs[-1]['seed']}"),
        ("time", f"{sum(leg['seconds'] for leg in legs) / 60:.0f} minutes"),
        ("collectives of a rank, each result right", f"{right.total():,}, {kinds:,} of them with a compressor"),
        ("of them by job", ", ".join(f"{name} {count:,}" for name, count in sorted(jobs.items()))),
        ("frames", f"{passed:,}: {fates}"),
        ("killed", ", ".join(f"{name} {count} times" for name, count in sorted(kills.items()))),
        ("launches of a job", f"{sum(leg['launches'] for leg in legs):,}"),
        ("ends of ranks", ", ".join(f"{name} {count:,}" for name, count in sorted(ends.items()))),
        ("wrong results, hangs, errors without a cause", str(sum(len(leg["found"]) for leg in legs))),
    ]
    return "\n".join(_row(list(row)) for row in (("", "of all legs"), ("---", "---"), *rows)) + "\n"


if __name__ == "__main__":
    if SOAK_DATA.exists():
        soaked = with_soak(SOAK_PAGE.read_text(encoding="utf-8"), SOAK_DATA.read_text(encoding="utf-8"))
        SOAK_PAGE.write_text(soaked, encoding="utf-8")
    PAGE.write_text(page(DATA.read_text(encoding="utf-8")), encoding="utf-8")

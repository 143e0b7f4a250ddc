"""docs/configuration.md lists every environment variable that the programs read."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("contracts", "controller", "lab", "mininet", "runtime", "softswitch", "worker")
FOR_CHILDREN = {"P4REDUCE_MARK", "P4REDUCE_TESTBED"}
"""Set by a program for the processes that it starts."""


def test_every_variable_is_listed() -> None:
    text = "".join(file.read_text(encoding="utf-8") for folder in SOURCES for file in (ROOT / folder).rglob("*.py"))
    read = set(re.findall(r'"(P4REDUCE_[A-Z_]*[A-Z])"', text))
    assert len(read) >= 15
    page = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    listed = re.findall(r"`(P4REDUCE_\w+)`", page.partition("\n## Environment variables\n")[2])
    assert sorted(listed) == sorted(read - FOR_CHILDREN)

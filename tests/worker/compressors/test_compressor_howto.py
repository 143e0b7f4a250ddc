"""docs/compressors.md: the compressor that it shows and the test of it run as they stand there."""

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from p4reduce.compressors import interface

DOCUMENT = Path(__file__).parents[3] / "docs" / "compressors.md"
HOWTO = "Write a compressor"


def section(heading: str) -> str:
    return DOCUMENT.read_text(encoding="utf-8").partition(f"\n## {heading}")[2].partition("\n## ")[0]


def blocks(heading: str, language: str) -> list[str]:
    """The code blocks of one section."""
    return re.findall(rf"^```{language}\n(.*?)^```$", section(heading), re.DOTALL | re.MULTILINE)


@pytest.fixture
def howto(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names that the example and its test define."""
    monkeypatch.setattr(interface, "_classes", dict(interface._classes))  # what it registers goes again
    module = types.ModuleType("howto")
    monkeypatch.setitem(sys.modules, "howto", module)
    for text in blocks(HOWTO, "python"):
        exec(compile(text, str(DOCUMENT), "exec"), vars(module))
    yield vars(module)


@pytest.mark.parametrize("world_size", [2, 3])
def test_the_test_in_the_document_passes(howto: dict[str, Any], world_size: int) -> None:
    howto["test_nothing_is_lost"](world_size)


def test_the_table_names_every_compressor_with_its_forms() -> None:
    rows = [[cell.strip(" `") for cell in line.split("|")] for line in section("The compressors").splitlines()]
    table = {row[1]: (row[2], row[4]) for row in rows if len(row) == 8}
    for name, cls in interface._classes.items():
        forms = "" if name == "none" else ", ".join(cls.forms)
        assert table[name] == (cls.__name__, forms)

"""docs/compressors.md: the compressor that it shows and the test of it run as they stand there."""

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from p4reduce.compressors import by_name, interface
from p4reduce.compressors.all_reduce import all_reduce_compressed
from p4reduce.testing.local_group import LocalGroup

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


def test_the_example_resumes_from_a_checkpoint(howto: dict[str, Any]) -> None:
    gradient = {"w": torch.arange(40.0).view(4, 10), "b": torch.ones(4)}
    ranks = [by_name("top-signs") for _ in range(2)]
    with LocalGroup(2) as group:
        group.run(lambda comm: all_reduce_compressed(comm, ranks[comm.rank], gradient))
        restored = [by_name("top-signs") for _ in range(2)]
        for one, other in zip(ranks, restored, strict=True):
            other.load_state_dict(one.state_dict())
        means = [
            group.run(lambda comm, those=those: all_reduce_compressed(comm, those[comm.rank], gradient)[0].means["w"])
            for those in (ranks, restored)
        ]
    assert all(torch.equal(mean, means[0][0]) for found in means for mean in found)
    assert means[0][0].count_nonzero() == 10


def test_the_table_names_every_compressor_with_its_forms() -> None:
    rows = [[cell.strip(" `") for cell in line.split("|")] for line in section("The compressors").splitlines()]
    table = {row[1]: (row[2], row[4]) for row in rows if len(row) == 8}
    for name, cls in interface._classes.items():
        forms = "" if name == "none" else ", ".join(cls.forms)
        assert table[name] == (cls.__name__, forms)

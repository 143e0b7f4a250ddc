"""The trials' records and tables, and which seeds are trained when the command is started again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import p4reduce_lab.trials.__main__ as command
from p4reduce_lab.datasets import Images
from p4reduce_lab.trials import report

PAGE = Path(__file__).parents[3] / "docs" / report.PAGE


def record(trial: str, variant: str, seed: int, accuracy: float | None, error: float | None = None) -> report.Record:
    return {"trial": trial, "variant": variant, "seed": seed, "settings": {}, "accuracy": accuracy, "error": error}


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / report.PAGE).parent.mkdir(parents=True)
    (folder / report.PAGE).write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    return folder


def rows(docs: Path, name: str) -> dict[str, list[str]]:
    text = (docs / report.PAGE).read_text(encoding="utf-8")
    found = text.partition(f"<!-- table: {name} -->\n")[2].partition("<!-- end -->")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in found.strip().splitlines()[2:]]
    return {row[0]: row[1:] for row in cells}


def test_a_page_without_the_markers_is_refused(docs: Path) -> None:
    (docs / report.PAGE).write_text("nothing", encoding="utf-8")
    with pytest.raises(ValueError, match="no place for a table: <!-- table: lgc -->"):
        report.write_tables([record("lgc", "dense", 0, 97.0)], docs)


def test_the_pages_tables_are_those_of_its_records(docs: Path) -> None:
    before = (docs / report.PAGE).read_text(encoding="utf-8")
    report.write_tables(report.read(PAGE.parents[1]), docs)
    assert (docs / report.PAGE).read_text(encoding="utf-8") == before


def test_only_missing_seeds_are_trained(tmp_path: Path, docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []

    def run(seed: int, images: Images) -> Iterator[report.Record]:
        trained.append(seed)
        yield record("lgc", "dense", seed, 97.0)

    nothing = torch.zeros(1)
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "TRIALS", {"lgc": run})
    monkeypatch.setattr(command.datasets, "mnist", lambda cache: Images(nothing, nothing, nothing, nothing))
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    report.keep([record("lgc", "dense", 1, 96.0)], docs)
    assert CliRunner().invoke(command.main, ["--report-only"], catch_exceptions=False).exit_code == 0
    assert trained == [] and rows(docs, "lgc") == {"dense": ["", "96.00 (1 seed)", ""]}
    for _ in range(2):
        assert CliRunner().invoke(command.main, [], catch_exceptions=False).exit_code == 0
    assert trained == [0, 2]
    assert rows(docs, "lgc") == {"dense": ["", "96.67 (96.00 to 97.00)", ""]}

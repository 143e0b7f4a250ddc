"""The records and tables, and which seeds are trained when the command is started again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import p4reduce_lab.papers.__main__ as command
from p4reduce_lab.datasets import Images
from p4reduce_lab.report import write_records


def record(trial: str, variant: str, seed: int, accuracy: float | None, error: float | None = None) -> command.Record:
    return {"trial": trial, "variant": variant, "seed": seed, "settings": {}, "accuracy": accuracy, "error": error}


def test_the_kept_records_fill_the_tables() -> None:
    found = command.tables(command.read())
    assert {name: len(table.rows) for name, table in found.items()} == {"lgc": 9, "layer-parallel": 9}
    assert ["signs", "1", "95.16 (94.96 to 95.33)", "0.28"] in found["lgc"].rows


def test_only_missing_seeds_are_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []

    def run(seed: int, images: Images) -> Iterator[command.Record]:
        trained.append(seed)
        yield record("lgc", "dense", seed, 97.0)

    def printed(*arguments: str) -> str:
        return CliRunner().invoke(command.main, arguments, catch_exceptions=False).output

    nothing = torch.zeros(1)
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "PAPERS", {"lgc": run})
    monkeypatch.setattr(command.datasets, "mnist", lambda cache: Images(nothing, nothing, nothing, nothing))
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    (tmp_path / "docs").mkdir()
    write_records(tmp_path / command.RECORDS, [record("lgc", "dense", 1, 96.0)])
    assert "| dense |  | 96.00 (1 seed) |  |" in printed("--report-only")
    assert trained == []
    for _ in range(2):
        assert "| dense |  | 96.67 (96.00 to 97.00) |  |" in printed()
    assert trained == [0, 2]

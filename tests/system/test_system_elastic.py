"""examples/elastic.py while workers, switches and the controller are killed at random."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from rigs import elastic_runs
from rigs.networks import RACKS
from system.chaos import run_chaos


@pytest.mark.fault(
    "worker, root, leaf and controller are killed at random under torchrun: new launches resume "
    "from a checkpoint; all ranks end with equal weights"
)
@pytest.mark.slow
@pytest.mark.processes
def test_random_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic_runs, "RANKS", 1)  # of each rack; `make chaos` has two
    report = run_chaos(tmp_path, len(elastic_runs.FAULTS_OF_TREE), seed=1, racks=RACKS)
    assert report.kills.total() == len(report.kills) == len(elastic_runs.FAULTS_OF_TREE)


@pytest.mark.fault(
    "worker, controller and one of two switches side by side are killed at random, the switch for good, under torchrun "
    "and `rejoin=True`: training goes on over the other; weights equal those of a training without kills"
)
@pytest.mark.slow
@pytest.mark.processes
def test_random_kills_side_by_side(tmp_path: Path) -> None:
    report = run_chaos(tmp_path, 3, seed=1, leg=200, options=("--rejoin",), switches=2)
    assert report.kills.total() == len(report.kills) == 3
    assert report.granted["1"] > 0

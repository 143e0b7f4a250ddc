"""examples/elastic.py while workers, switches and the controller are killed at random."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from rigs.elastic_runs import FAULTS, FAULTS_OF_TREE
from system.chaos import run_chaos


@pytest.mark.fault(
    "worker, switch, of a tree a leaf too, and controller are killed at random under torchrun: new launches resume "
    "from a checkpoint; all ranks end with equal weights"
)
@pytest.mark.slow
@pytest.mark.parametrize(("racks", "kills"), [(1, len(FAULTS)), (2, len(FAULTS_OF_TREE))])
def test_random_kills(tmp_path: Path, racks: int, kills: int) -> None:
    report = run_chaos(tmp_path, kills, seed=1, racks=racks)
    assert report.kills.total() == len(report.kills) == kills

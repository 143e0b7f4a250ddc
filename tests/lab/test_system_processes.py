"""What the demo and the benchmark find out of a running system, and what they leave."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from p4reduce_contracts.jobs.answers import AwaySwitch, Count, JobStats, Stats
from p4reduce_contracts.jobs.errors import SwitchAwayError
from p4reduce_lab.system import ROOT, System, new_state_dir


def test_a_run_starts_after_an_interrupted_one_left_its_jobs(tmp_path: Path) -> None:
    (new_state_dir(tmp_path) / "left").mkdir(parents=True)
    assert not new_state_dir(tmp_path).exists()


def test_bytes_between_switches_are_not_counted_without_one_of_them() -> None:
    stats = Stats(
        (
            JobStats("train", 1, contributions=Count(2, 200), duplicates=Count(1, 100), switch=ROOT),
            JobStats("train", 1, contributions=Count(9, 900), switch="leaf1", parent_answers=Count(2, 80)),
        ),
        (),
    )
    client = Mock()
    client.stats.side_effect = [stats, replace(stats, away=(AwaySwitch("leaf2", "leaf2 did not answer"),))]
    system = System("127.0.0.1:1", client, (), Mock())
    assert system.trunk_bytes("train") == (300, 80)
    with pytest.raises(SwitchAwayError, match="leaf2 did not answer"):
        system.trunk_bytes("train")

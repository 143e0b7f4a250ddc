"""The soak: a short leg finds nothing, and a failure is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from rigs.fork_server import ForkServer
from system.soak import JOBS, Soak

SEED = 25788
"""A leg that loses, copies, delays and damages frames, and begins with the kill of a leaf and of the root."""


@pytest.mark.slow
def test_a_leg_of_everything_at_once_finds_nothing(tmp_path: Path, torch_server: ForkServer) -> None:
    folder = tmp_path / "leg"
    folder.mkdir()
    running = Soak(folder, SEED, 4.0, torch_server, steps=25)
    leg = running.run()
    running.keep(tmp_path)
    assert leg.found == []
    assert leg.kills.total() >= 1 and leg.launches >= len(JOBS)
    assert all(leg.jobs[job] > 0 for job in JOBS), leg.jobs
    assert leg.right.total() >= 25 and leg.ends["at its last collective"] >= 1
    assert all(leg.frames[fate] > 0 for fate in ("frames up", "frames down", "dropped", "duplicated", "late"))
    assert not (tmp_path / "found").exists()


@pytest.mark.slow
def test_a_wrong_result_is_found_and_kept(tmp_path: Path, torch_server: ForkServer) -> None:
    folder = tmp_path / "leg"
    folder.mkdir()
    running = Soak(folder, SEED, 0.0, torch_server, steps=25, wrong=3)
    leg = running.run()
    running.keep(tmp_path)
    assert leg.found and all("status 4" in found and "AssertionError" in found for found in leg.found), leg.found
    kept = json.loads((tmp_path / "found" / f"leg-{SEED}.json").read_text(encoding="utf-8"))
    assert kept["leg"]["seed"] == SEED and kept["leg"]["conditions"]["drop"] > 0
    said = [event.partition(" ")[2] for event in kept["events"]]
    assert any("launch 0 of two" in event for event in said)
    assert [event for event in said if "FOUND" in event] == [f"FOUND: {found}" for found in leg.found]
    assert any("right: " in text for text in kept["logs"].values())
    assert any(" up " in frame for frame in kept["frames"])

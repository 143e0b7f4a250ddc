"""Short runs of the campaigns: soak, random kills, launches, and sums with the same bits; `make` has longer ones."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch")

from torch.distributed import ProcessGroupGloo

from rigs import elastic_runs
from rigs.fork_server import ForkServer
from rigs.system import RACKS
from system import launches
from system.chaos import run_chaos
from system.members import run_members
from system.same_bits import WAYS, Case, cases, plain, variations
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


@pytest.mark.fault(
    "members of a process group are killed, and others join, at random (torch 2.14): the others go on in the same "
    "processes; weights equal those of a replay"
)
@pytest.mark.skipif(
    not hasattr(ProcessGroupGloo, "reconfigure"), reason="torch before 2.14 does not reconfigure groups"
)
@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("over", ["memory", "switches", "launch"])
def test_members_come_and_go(over: str, tmp_path: Path) -> None:
    report = run_members(tmp_path, over=over, steps=60, seed=3)
    assert report.killed and report.joined and report.wrong == 0


@pytest.mark.fault(
    "a launch's ranks or torchrun are killed, raise, or cannot start a switch: switches, controller and files end"
)
@pytest.mark.processes
@pytest.mark.slow
def test_launches_train_and_leave_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert not launches.main(["--launches", str(len(launches.ENDS)), "--at-once", "2"]), capsys.readouterr().out


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_sum_has_the_same_bits_however_it_is_made(case: Case) -> None:
    ways: Counter[str] = Counter()
    for way, difference in variations(case, 3 * len(WAYS), 5, plain(case)):
        assert not difference
        ways[way] += 1
    assert ways == {way.__name__: 3 for way in WAYS}


def test_other_bits_are_found() -> None:
    case = cases()[0]
    expected = bytearray(plain(case))
    expected[-1] ^= 1
    found = [difference for _, difference in variations(case, len(WAYS), 5, bytes(expected))]
    assert found == [
        f"float32 in 32 bits, seed 5, variation {number}: ranks [0, 1, 2, 3, 4, 5]" for number in range(len(WAYS))
    ]

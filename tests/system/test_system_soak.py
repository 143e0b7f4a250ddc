"""The soak: a short leg finds nothing, a failure is kept, and the relay drops, copies, delays and damages frames."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from rigs.fork_server import ForkServer
from rigs.limits import LIMIT_S
from rigs.udp_relay import PathConditions, UdpRelay
from system.soak import JOBS, Soak, soak

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


def test_results_are_written_after_each_leg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def run(self: Soak) -> object:
        if self.leg.seed > SEED:
            seen.append(len(json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))))
        self.leg.right["int32"] += 2
        return self.leg

    monkeypatch.setattr(Soak, "run", run)
    legs = soak(tmp_path, SEED, 1.0, None, lambda done: done < 3)  # type: ignore[arg-type]
    assert [leg.seed for leg in legs] == [SEED, SEED + 1, SEED + 2] and seen == [1, 2]


def test_the_relay_damages_copies_and_loses_frames_and_says_so() -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as switch,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as worker,
    ):
        for each in (switch, worker):
            each.bind(("127.0.0.1", 0))
            each.settimeout(LIMIT_S)
        conditions = PathConditions(duplicate=1.0, late=1.0, late_s=0.001, flip=1.0)
        with UdpRelay(switch.getsockname(), conditions, seed=1) as relay:
            worker.sendto(bytes(4), relay.address)
            copies = [switch.recvfrom(100) for _ in range(2)]
            assert copies[0] == copies[1] and sum(copies[0][0]).bit_count() == 1
            relay.conditions = PathConditions(drop=1.0)
            switch.sendto(b"lost", copies[0][1])
            deadline = time.monotonic() + LIMIT_S
            while relay.counts["frames down"] < 1 and time.monotonic() < deadline:
                time.sleep(0.001)
            relay.conditions = PathConditions()
            switch.sendto(b"back", copies[0][1])
            assert worker.recvfrom(100) == (b"back", relay.address)
            log = relay.log()
    fates = [line.split(" ", 3)[3].rpartition(" ")[0] for line in log]
    assert "flipped" in fates[0] and fates[0].endswith("duplicated, late, late") and fates[1:] == ["dropped", "passed"]
    assert relay.counts == {
        "frames up": 1, "frames down": 2, "flipped": 1, "duplicated": 1, "late": 2, "dropped": 1
    }  # fmt: skip

"""P4REDUCE_TRACE: what a trace of collectives says. Time is virtual."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from p4reduce.communicator import Communicator
from p4reduce.errors import CollectiveTimeoutError
from rigs.launched import OneHost
from rigs.virtual_path import rank_0


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("P4REDUCE_TRACE", str(tmp_path / "trace.json"))
    return tmp_path / "trace.json"


def events(file: Path) -> list[dict[str, Any]]:
    text = file.read_text()
    assert text.startswith("[\n") and text.endswith(",\n")
    found: list[dict[str, Any]] = json.loads(text.removesuffix(",\n") + "]")
    return found


def test_spans_of_collectives_with_their_cost(file: Path) -> None:
    comm, path = rank_0(1, lambda now: 0.5)
    for _ in range(2):
        comm.all_reduce(np.arange(400, dtype=np.int32))
    spans = [event for event in events(file) if event["ph"] == "X"]
    assert [span["name"].startswith("all_reduce of 400 int32 (operation") for span in spans] == [True, True]
    assert spans[0]["ts"] + spans[0]["dur"] == spans[1]["ts"]
    assert sum(span["dur"] for span in spans) == pytest.approx(path.now * 1e6)
    for count in ("rounds", "bytes_up", "bytes_down"):
        assert sum(span["args"][count] for span in spans) == getattr(comm.stats, count) > 0
    assert {event["args"]["name"] for event in events(file) if event["name"] == "thread_name"} == {"job train"}


def test_waits_are_by_rank(file: Path) -> None:
    comm, _ = rank_0(3)
    with pytest.raises(CollectiveTimeoutError):
        comm.barrier(timeout_s=5)
    waits = {event["name"]: event for event in events(file) if event["name"] in ("rank 1", "rank 2")}
    (whole,) = [event for event in events(file) if event["name"].startswith("barrier")]
    for wait in waits.values():
        assert whole["ts"] <= wait["ts"] and wait["ts"] + wait["dur"] == whole["ts"] + whole["dur"]
        assert wait["dur"] == pytest.approx(5e6, rel=0.2)
    assert len({event["tid"] for event in (whole, *waits.values())}) == 3
    assert whole["args"]["retransmissions"] > 0


def test_without_a_switch_spans_cover_calls_and_sums_and_waits_are_by_rank(file: Path) -> None:
    def run(comm: Communicator) -> None:
        comm.all_reduce(np.ones(400, np.float32))
        if comm.rank == 0:
            with pytest.raises(CollectiveTimeoutError):
                comm.barrier(timeout_s=0.5)

    for _ in range(2):
        with OneHost(2) as group:
            group.run(run)
    spans = [event for event in events(file) if event["ph"] == "X"]
    first = [span for span in spans if span["args"]["rank"] == 0]
    names = [span["name"].partition(" (operation")[0] for span in first]
    assert [name for name in names if name != "rank 1"][:2] == ["all_reduce of 400 float32", "barrier"]
    wait, whole = first[names.index("barrier") - 1 :][:2]
    assert wait["name"] == "rank 1"
    assert whole["ts"] <= wait["ts"] and wait["ts"] + wait["dur"] <= whole["ts"] + whole["dur"]
    assert len({span["tid"] for span in spans if span["name"].startswith("all_reduce")}) == 2, "one for each group"


def test_processes_append_to_one_file(file: Path) -> None:
    file.write_text("[\n" + json.dumps({"ph": "X", "name": "of another process"}) + ",\n")
    comm, _ = rank_0(1)
    comm.barrier()
    assert [event["name"] for event in events(file) if event["ph"] == "X"][0] == "of another process"
    assert len([event for event in events(file) if event["ph"] == "X"]) == 2

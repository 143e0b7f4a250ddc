"""A collective that waits: what it logs, and what ends it; and what a trace of collectives says (P4REDUCE_TRACE).

Time is virtual where no socket is needed.
"""

from __future__ import annotations

import json
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from p4reduce.communicator import Communicator
from p4reduce.errors import CollectiveTimeoutError, JobResetError
from p4reduce.paths import waits
from p4reduce.testing.udp_switch import UdpSwitch, connect
from p4reduce.transport import UdpTransport
from p4reduce_contracts.jobs.lease import Level
from rigs.launched import OneHost
from rigs.limits import LIMIT_S, wait_until
from rigs.virtual_path import rank_0


@pytest.mark.fault(
    "a rank is busy for minutes (it saves a checkpoint): the others wait, for 30 minutes by default; the log "
    "names the rank after 10 s, 20 s, 40 s and so on"
)
def test_a_wait_is_logged_after_10_s_and_then_at_doubling_times(caplog: pytest.LogCaptureFixture) -> None:
    comm, path = rank_0(3)
    comm.path.at_wait = Mock()
    with pytest.raises(CollectiveTimeoutError, match="did not finish in 1800 s: the switch still waits for ranks 1, 2"):
        comm.all_reduce(np.ones(5, np.float32))
    assert path.now == pytest.approx(1800, abs=1)
    with pytest.raises(CollectiveTimeoutError, match="1800 s"):
        comm.barrier()
    start = "rank 0 of job train has waited {} s in all_reduce of 5 float32 (operation 0, layout "
    lines = [line for line in caplog.messages if "has waited" in line]
    assert len(lines) == comm.path.at_wait.call_count == 8
    for line, seconds in zip(lines, (10, 20, 40, 80, 160, 320, 640, 1280), strict=True):
        assert line.startswith(start.format(seconds))
        assert line.endswith("): the switch still waits for ranks 1, 2")
    levels = {record.levelno for record in caplog.records if "has waited" in record.getMessage()}
    assert levels == {logging.WARNING}


def test_a_wait_in_the_search_for_hosts_is_told_too() -> None:
    comm, _ = rank_0(3)
    comm.path.at_wait, comm.hosts = Mock(), Mock(searched=False, sums=None)
    with pytest.raises(CollectiveTimeoutError):
        comm.find_hosts()
    assert comm.path.at_wait.call_count == 8


def test_a_slow_collective_with_progress_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    comm, path = rank_0(1, lambda now: 6.0)
    assert (comm.all_reduce(np.arange(400, dtype=np.int32)) == np.arange(400)).all()
    assert path.now > 20
    assert not [line for line in caplog.messages if "has waited" in line]


@pytest.mark.fault(
    "the job is reset under a collective that waits: JobResetError interrupts it, regardless of its timeout"
)
def test_a_reset_ends_a_wait_of_30_minutes_at_once(caplog: pytest.LogCaptureFixture) -> None:
    comm, path = rank_0(2)
    comm.failure.membership = Mock(failure=lambda: JobResetError("rank 1 is gone") if path.now >= 20 else None)
    with pytest.raises(JobResetError, match="rank 1 is gone"):
        comm.barrier()
    assert path.now == pytest.approx(20, abs=0.5)
    assert "communicator failed" in caplog.messages


@pytest.mark.fault(
    "only full frames are lost (MTU) in a collective: CollectiveTimeoutError names the size that is "
    "lost, the MTU that is needed, and the path's where the system knows it"
)
def test_a_path_whose_mtu_is_below_a_frame_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system knows the path's MTU."""
    monkeypatch.setattr(UdpTransport, "path_mtu", property(lambda self: 1000))
    with UdpSwitch(1, 16) as switch, connect(switch.port, 0, 1, 16, timeout_s=1.0) as comm:
        process = switch.switch.process
        monkeypatch.setattr(
            switch.switch, "process", lambda rank, frame: process(rank, frame) if len(frame) < 1000 else []
        )
        with pytest.raises(CollectiveTimeoutError) as caught:
            comm.all_reduce(np.ones(5000, np.float32))
    assert "answered frames of up to 192 bytes, and none of 1088 bytes or more" in str(caught.value)
    assert str(caught.value).endswith("; the path's MTU is 1000 bytes, and a full frame takes a packet of 1116 bytes")


BELOW = Level("leaf1", ((0,), (1,)), "root"), Level("root", ((0, 1),))


@pytest.mark.fault("the switch's address answers nothing: the log reports it after 10 s")
@pytest.mark.fault(
    "the path to the switch breaks under a collective that waits: the log names the time of the last answer"
)
@pytest.mark.parametrize(
    ("until", "levels", "told"),
    [
        (0, (), ["has waited 10 s in barrier .*the switch at 10.0.0.7:21072 answered nothing", "answered nothing"]),
        (5, (), ["still waits for rank 1$", "the last answer of the switch at 10.0.0.7:21072 came 1[56] s ago$"]),
        # it has what it was said to wait for, and answers nothing by itself
        (5, BELOW, ["still waits for rank 1$", " ago: see that its links to root carry frames$"]),
    ],
)
def test_a_switch_that_answers_nothing_or_no_more_is_named(
    caplog: pytest.LogCaptureFixture, until: float, levels: tuple[Level, ...], told: list[str]
) -> None:
    comm, _ = rank_0(2, lambda now: 0.0 if now < until else None, levels=levels)
    with pytest.raises(CollectiveTimeoutError):
        comm.barrier(timeout_s=25)
    lines = [line for line in caplog.messages if "has waited" in line]
    assert len(lines) == 2 and all(map(re.search, told, lines)), lines


def test_over_a_socket_a_wait_is_logged_too(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(waits, "LOG_AFTER_S", 0.2)
    with UdpSwitch(2, 16) as switch, ThreadPoolExecutor(1) as pool:
        early, late = (connect(switch.port, rank, 2, 16, timeout_s=LIMIT_S) for rank in range(2))
        summed = pool.submit(early.all_reduce, np.ones(5, np.float32))
        wait_until(lambda: "the switch still waits for rank 1" in caplog.text)
        assert (late.all_reduce(np.ones(5, np.float32)) == 2).all()
        assert (summed.result(LIMIT_S) == 2).all()
        for comm in (early, late):
            comm.close(wait=False)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("P4REDUCE_TRACE", str(tmp_path / "trace.json"))
    return tmp_path / "trace.json"


def events(file: Path) -> list[dict[str, Any]]:
    text = file.read_text()
    assert text.startswith("[\n") and text.endswith(",\n")
    found: list[dict[str, Any]] = json.loads(text.removesuffix(",\n") + "]")
    return found


def spans_of(file: Path) -> list[dict[str, Any]]:
    return [event for event in events(file) if event["ph"] == "X"]


def test_spans_of_collectives_with_their_cost(file: Path) -> None:
    comm, path = rank_0(1, lambda now: 0.5)
    for _ in range(2):
        comm.all_reduce(np.arange(400, dtype=np.int32))
    spans = spans_of(file)
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
    spans = spans_of(file)
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
    first, own = spans_of(file)
    assert first["name"] == "of another process" != own["name"]

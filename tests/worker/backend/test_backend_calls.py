"""The calls of a group: what torch calls, what errors say of those that ranks are in, and the ways of large copies."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from torch.distributed import AllreduceOptions, DistBackendError, DistNetworkError, HashStore, ProcessGroupGloo

from p4reduce.communicator import Communicator
from p4reduce.pytorch.backend import calls
from p4reduce.pytorch.backend.calls import Calls, GlooWork, wait_for
from p4reduce.pytorch.backend.contiguous import contiguously
from p4reduce.pytorch.backend.group import ProcessGroupP4Reduce
from p4reduce.pytorch.backend.routes import TRIALS, Routes
from p4reduce.testing.local_group import LocalGroup
from rigs.limits import LIMIT_S, wait_until

FOUR = [torch.ones(4)]


def test_ranks_whose_time_is_over_say_what_each_is_in(monkeypatch: pytest.MonkeyPatch) -> None:
    store = HashStore()
    ranks = [Calls(store, rank, 3) for rank in range(3)]
    ranks[1].begin("barrier", [], "the switch", 1)
    mine = [
        each.begin(name, FOUR, "gloo", 1)
        for each, name in zip(ranks, ("allgather", "allreduce", "allgather"), strict=True)
    ]
    with ThreadPoolExecutor(3) as pool:
        found = pool.map(lambda each, call: each.after(call, timed_out=True), ranks, mine)
    ways = "ranks 0, 2 are in all_gather number 1 (4 float32) over gloo, rank 1 is in all_reduce number 2 (4 float32)"
    assert set(found) == {f"; {ways} over gloo"}
    monkeypatch.setattr(calls, "OTHERS_S", 0.0)
    first, last = Calls(HashStore(), 0, 2), Calls(HashStore(), 0, 1)
    call = first.begin("scatter", FOUR, "gloo", 1)
    in_none = "; rank 0 is in scatter number 1 over gloo, rank 1 is in none that is known"
    assert first.after(call, timed_out=True) == in_none
    assert first.after(call, timed_out=False) == last.after(call, timed_out=True) == ""


def test_a_rank_that_goes_on_after_a_failure_is_in_the_next_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "OTHERS_S", 0.0)
    store = HashStore()
    failed, other = Calls(store, 0, 2), Calls(store, 1, 2)
    failed.after(failed.begin("allgather", FOUR, "gloo", 1), timed_out=False)
    late = other.begin("allreduce", FOUR, "gloo", 1)
    assert "rank 0 is in all_gather number 1" in other.after(late, timed_out=True)
    now = failed.begin("broadcast", FOUR, "gloo", 1)
    assert "rank 0 is in broadcast number 2" in other.after(late, timed_out=True)
    failed.ended(now)
    assert "rank 0 is in none that is known" in other.after(late, timed_out=True)


@pytest.mark.fault("the process of torch.distributed's store is stopped, or ends: errors come without what it had")
@pytest.mark.parametrize(
    "answer", [lambda *_: threading.Event().wait(LIMIT_S), Mock(side_effect=DistNetworkError("ended"))]
)
def test_a_store_that_does_not_answer_is_not_waited_for(answer: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "OTHERS_S", 0.0)
    monkeypatch.setattr(calls, "STORE_S", 0.05)
    rank = Calls(Mock(check=answer, set=answer), 0, 2)
    call = rank.begin("allreduce", FOUR, "gloo", 1)
    rank.waits(call)
    assert "rank 1 is in none that is known" in rank.after(call, timed_out=True)


def test_a_rank_that_waits_for_long_is_known_to_be_in_the_collective(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "LOG_AFTER_S", 0.01)
    store, go_on = HashStore(), threading.Event()

    class Slow:
        def wait(self, timeout: timedelta) -> bool:
            if not go_on.wait(timeout.total_seconds() or LIMIT_S):
                raise RuntimeError("Operation timed out!")
            return True

        def is_completed(self) -> bool:
            return go_on.is_set()

    slow, other = Calls(store, 0, 2), Calls(store, 1, 2)
    work = GlooWork(Slow(), slow.begin("broadcast", FOUR, "gloo", 60), slow)
    with pytest.raises(RuntimeError, match=r"^Operation timed out!"):
        work.wait(timedelta(seconds=0.005))
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work.wait)
        wait_until(lambda: store.check(["in/0"]) and store.get("in/0") != b"", "it did not say what it is in")
        call = other.begin("allreduce", FOUR, "the switch", 60)
        other.running = call
        other.running_waits()
        assert "rank 0 is in broadcast number 1" in other.after(call, timed_out=False)
        go_on.set()
        assert done.result(LIMIT_S)
    assert store.get("in/0") == b""
    other.ended(call)
    assert store.get("in/1") == b""


def test_the_future_of_a_work_that_was_waited_for_has_the_tensors_that_it_wrote() -> None:
    columns = torch.ones(2, 3).t()
    gloo = ProcessGroupGloo(HashStore(), 0, 1, timedelta(seconds=LIMIT_S))
    work = contiguously(gloo.allreduce, [columns], AllreduceOptions())
    work.wait()
    assert [tensor.data_ptr() for tensor in work.get_future().wait()] == [columns.data_ptr()]


RANKS = 3


def ways(comm: Communicator, gloo_s: list[float], switch_s: list[float]) -> list[str]:
    """Return the ways of calls that take this long on this rank."""
    now_s = 0.0
    routes = Routes(lambda: now_s)

    def take(way: str, seconds: float) -> str:
        nonlocal now_s
        now_s += seconds
        return way

    def call(gloo_s: float, switch_s: float) -> str:
        over_switch, over_gloo = lambda: take("switch", switch_s), lambda: take("gloo", gloo_s)
        return routes.run(comm, 4096, over_switch, over_gloo, 60)

    trials = [call(*seconds) for seconds in zip(gloo_s, switch_s, strict=True) for _ in range(2)]
    return trials + [call(0, 0) for _ in range(2)]


@pytest.mark.parametrize(
    ("slowest_gloo_s", "chosen"),
    [([9.0, 2.0], "gloo"), ([9.0, 4.0], "switch")],  # the switch takes 3 s on rank 1 and 1 s elsewhere
)
def test_all_ranks_choose_what_is_faster_on_the_slowest(slowest_gloo_s: list[float], chosen: str) -> None:
    with LocalGroup(RANKS) as group:
        found = group.run(
            lambda comm: ways(
                comm, slowest_gloo_s if comm.rank == 2 else [0.1, 0.1], [3.0, 3.5] if comm.rank == 1 else [1.0, 1.0]
            )
        )
    assert found == [["gloo", "switch"] * TRIALS + [chosen] * 2] * RANKS


UNSUPPORTED = {"endCoalescing"}
"""gloo has not this: C++ raises an error without waiting for anything."""


def test_every_collective_of_torch_s_trampoline_is_overridden() -> None:
    """torch calls its own method with the interpreter's lock held where ours is missing."""
    (header,) = (Path(torch.__file__).parent / "include/torch/csrc/distributed/c10d").rglob("PyProcessGroup.hpp")
    methods = re.findall(r"intrusive_ptr<Work> (\w+)\([^;{}]*\) override \{(.*?)\n  \}", header.read_text(), re.DOTALL)
    names = {method: re.findall(r'"(\w+)"', body) or [method] for method, body in methods}
    assert {"allreduce", "allgather", "send", "recv"} <= names.keys()
    ours = vars(ProcessGroupP4Reduce)
    assert [method for method, ways in names.items() if not ours.keys() & {*ways}] == [
        method for method in names if method in UNSUPPORTED
    ]


def test_a_collective_over_gloo_that_ends_right_after_a_look_is_done() -> None:
    class Late:
        """Is not done when it is waited for first, and is when it is looked at."""

        waits = 0

        def wait(self, timeout: timedelta) -> bool:
            self.waits += 1
            if self.waits == 1:
                raise RuntimeError("Operation timed out!")
            return True

        def is_completed(self) -> bool:
            return True

    assert wait_for(Late(), lost=lambda: "")


def test_a_wait_for_gloo_ends_when_a_member_is_lost() -> None:
    gloo = [None, None]

    def make(rank: int) -> None:
        gloo[rank] = ProcessGroupGloo(store, rank, 2, timedelta(seconds=LIMIT_S))

    store = HashStore()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(make, range(2)))
    work = gloo[0].allreduce([torch.ones(3)], AllreduceOptions())
    causes = iter(["", "", "rank 1 has ended"])
    with pytest.raises(DistBackendError, match="rank 1 has ended"):
        wait_for(work, lost=lambda: next(causes))
    gloo[1].allreduce([torch.ones(3)], AllreduceOptions()).wait()

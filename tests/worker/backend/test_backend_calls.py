"""What errors say of the collectives that the ranks of a group are in."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from unittest.mock import Mock

import pytest
import torch
from torch.distributed import AllreduceOptions, DistNetworkError, HashStore, ProcessGroupGloo

from p4reduce.pytorch.backend import calls
from p4reduce.pytorch.backend.calls import Calls, GlooWork
from p4reduce.pytorch.backend.contiguous import contiguously
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


@pytest.mark.fault("the process of torch.distributed's store is stopped, or ends: errors come without what it had")
@pytest.mark.parametrize(
    "answer", [lambda *_: threading.Event().wait(LIMIT_S), Mock(side_effect=DistNetworkError("ended"))]
)
def test_a_store_that_does_not_answer_is_not_waited_for(answer: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "OTHERS_S", 0.0)
    monkeypatch.setattr(calls, "_STORE_S", 0.05)
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

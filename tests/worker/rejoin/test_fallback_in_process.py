"""Ranks that go on over a process group: every place at which a reset can cut a run gives an undisturbed one's sums."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from p4reduce import Communicator, waits
from p4reduce.errors import CollectiveError, CollectiveMismatchError, CommunicatorClosedError
from p4reduce.pytorch import fallback
from p4reduce.testing.local_group import LocalGroup
from p4reduce.testing.resettable_group import ResettableGroup
from p4reduce_contracts.wire import SMALL
from rigs.cut_runs import CutGroup, run, run_and_close, same
from rigs.limits import LIMIT_S
from rigs.memory_group import fallen_back
from rigs.tree_group import CutTree

ONES = np.ones(5, np.int32)


@pytest.fixture(autouse=True)
def hurried_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that alone missed the end of the last exchange does not wait."""
    monkeypatch.setattr(fallback, "CLOSE_PATIENCE_S", 0.5)


@pytest.fixture(scope="module")
def undisturbed() -> list[list[Any]]:
    with LocalGroup(2, geometry=SMALL, slots=4) as group:
        return group.run(run)


@pytest.mark.fault(
    "a reset instead of any one answer of the switch, ranks with a process group to fall back on: every rank "
    "gets the sums of an undisturbed run"
)
@pytest.mark.parametrize("cut_group", [CutGroup, CutTree])
def test_a_reset_at_any_point_changes_no_sum(undisturbed: list[list[Any]], cut_group: type[CutGroup]) -> None:
    over_group = 0
    for cut in range(0, 56):
        with cut_group(2, {cut}) as group:
            fallbacks = fallen_back(group)
            found = group.run(run_and_close)
            assert all(same(a, b) for a, b in zip(found, undisturbed, strict=True)), f"cut at answer {cut}"
            assert not group.cuts
            over_group += sum(recovery.collectives for recovery in fallbacks)
    assert over_group


@pytest.mark.fault(
    "the switch is unavailable for the rest of a run: every kind of collective goes over the group, with the same bits"
)
@pytest.mark.parametrize("cut_group", [CutGroup, CutTree])
def test_a_switch_that_stays_away_changes_no_sum(
    undisturbed: list[list[Any]], monkeypatch: pytest.MonkeyPatch, cut_group: type[CutGroup]
) -> None:
    """All kinds of collectives over the group: the same bits."""
    monkeypatch.setattr(ResettableGroup, "join_epoch", lambda self, rank, timeout_s: time.sleep(3600))
    for cut in (0, 5, 11):
        with cut_group(2, {cut}) as group:
            fallbacks = fallen_back(group)
            found = group.run(run)
            assert all(same(a, b) for a, b in zip(found, undisturbed, strict=True))
            assert group.epoch == 8
            assert all(recovery.collectives >= 5 for recovery in fallbacks)


@pytest.mark.parametrize(
    ("cut_group", "seed"), [*((CutGroup, seed) for seed in range(10)), *((CutTree, seed) for seed in range(5))]
)
def test_many_resets_also_during_recovery(seed: int, cut_group: type[CutGroup]) -> None:
    random = np.random.default_rng(seed)
    cuts = set(np.cumsum(random.integers(1, 25, 12)).tolist())
    with LocalGroup(3, geometry=SMALL, slots=4) as group:
        wanted = group.run(run)
    with cut_group(3, cuts) as group:
        fallen_back(group)
        assert all(same(a, b) for a, b in zip(group.run(run_and_close), wanted, strict=True))


def test_the_ranks_return_to_the_switch_in_the_same_collective() -> None:
    with ResettableGroup(2) as group:
        fallbacks = fallen_back(group)
        group.run(lambda comm: comm.all_reduce(ONES))
        for epoch in (8, 9):
            group.reset()
            deadline = time.monotonic() + LIMIT_S
            while [comm.lease.epoch for comm in group.comms] != [epoch] * 2:
                assert time.monotonic() < deadline
                assert all((total == 2).all() for total in group.run(lambda comm: comm.all_reduce(ONES)))
        done = [recovery.collectives for recovery in fallbacks]
        assert done[0] == done[1]
        group.run(Communicator.barrier)
        assert [recovery.collectives for recovery in fallbacks] == done, "over the switch again"


def test_a_failed_return_to_the_switch_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "_PAUSE_S", 0.01)
    join_epoch, hindered = ResettableGroup.join_epoch, set[int]()

    def join_at_last(self: ResettableGroup, rank: int, timeout_s: float) -> Any:
        if rank not in hindered:
            hindered.add(rank)
            raise OSError("no route to the switch")
        return join_epoch(self, rank, timeout_s)

    with ResettableGroup(2) as group:
        fallen_back(group)
        group.run(lambda comm: comm.all_reduce(ONES))
        monkeypatch.setattr(ResettableGroup, "join_epoch", join_at_last)
        group.reset()
        deadline = time.monotonic() + LIMIT_S
        while [comm.lease.epoch for comm in group.comms] != [8, 8]:
            assert time.monotonic() < deadline
            assert all((total == 2).all() for total in group.run(lambda comm: comm.all_reduce(ONES)))
    assert hindered == {0, 1}


def test_the_loss_of_all_frames_starts_the_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResettableGroup, "join_epoch", lambda self, rank, timeout_s: time.sleep(3600))
    lost = False
    with ResettableGroup(2, lose=lambda rank, payload: lost) as group:
        fallbacks = fallen_back(group)
        group.run(lambda comm: comm.all_reduce(ONES))
        lost = True
        for comm in group.comms:
            comm.timeout_s = 0.5
        assert all((total == 2).all() for total in group.run(lambda comm: comm.all_reduce(ONES)))
        assert [recovery.collectives for recovery in fallbacks] == [1, 1]


def errors(group: ResettableGroup, call: Callable[[Communicator], Any]) -> list[Exception]:
    def told(comm: Communicator) -> Exception:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - the caller looks at it
            call(comm)
        return caught.value

    return group.run(told)


def test_different_calls_over_the_group_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResettableGroup, "join_epoch", lambda self, rank, timeout_s: time.sleep(3600))
    with ResettableGroup(2) as group:
        fallen_back(group)
        group.reset()
        found = errors(group, lambda comm: comm.all_reduce(np.ones(5 + comm.rank, np.int32)))
        assert all(isinstance(error, CollectiveMismatchError) for error in found)
        assert "rank 0: all_reduce of 5 int32" in str(found[1])


def test_a_wait_for_a_rank_in_the_group_is_logged_and_ends_with_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ResettableGroup, "join_epoch", lambda self, rank, timeout_s: time.sleep(3600))
    monkeypatch.setattr(waits, "LOG_AFTER_S", 0.05)
    with ResettableGroup(2) as group:
        recovery = fallen_back(group)[0]
        recovery._patience_s = 1.0
        group.reset()
        with pytest.raises(CollectiveError, match=r"the process group failed too: a rank did not come in 1 s"):
            group.comms[0].barrier()
        with pytest.raises(CollectiveError, match="the process group failed too"):
            group.comms[0].check()
    text = "rank 0 of job test has waited 0 s in barrier "
    assert [
        message for message in caplog.messages if message.startswith(text) and "ranks of the process group" in message
    ]


def test_an_interrupt_in_the_group_ends_the_communicator(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others may be in the middle of what this rank has left: its next call must not go into it."""
    monkeypatch.setattr(ResettableGroup, "join_epoch", lambda self, rank, timeout_s: time.sleep(3600))

    def interrupt(record: bytes) -> list[bytes]:
        raise KeyboardInterrupt

    with ResettableGroup(2) as group:
        recovery = fallen_back(group)[0]
        group.reset()
        monkeypatch.setattr(recovery._group, "gather", interrupt)
        with pytest.raises(KeyboardInterrupt):
            group.comms[0].barrier()
        with pytest.raises(CollectiveError, match="barrier .* was interrupted by KeyboardInterrupt"):
            group.comms[0].barrier()


def test_closing_while_the_switch_is_away() -> None:
    with ResettableGroup(2) as group:
        fallen_back(group)
        group.reset()
        group.run(lambda comm: comm.all_reduce(ONES))
        group.run(Communicator.close)
        with pytest.raises(CommunicatorClosedError):
            group.comms[0].barrier()

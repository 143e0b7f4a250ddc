"""Ranks that are all on one host, without a switch: they compare their calls, and sum, in its memory."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from p4reduce.codecs import Floats, Int32
from p4reduce.collectives import Plans
from p4reduce.communicator import Communicator
from p4reduce.errors import (
    CollectiveError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    HostLostError,
    NotFiniteError,
    PeerRefusedError,
    Reason,
)
from p4reduce.paths.hosts import memory_path
from p4reduce.testing.local_group import LocalGroup
from rigs.float_sums import by_numpy
from rigs.launched import OneHost
from rigs.limits import LIMIT_S

RANKS = 3


@pytest.fixture
def group() -> Iterator[OneHost]:
    with OneHost(RANKS) as group:
        yield group


@pytest.mark.parametrize("size", [1, 31, 1_000, 100_000])
def test_collectives_of_any_size_are_made_in_memory(group: OneHost, size: int) -> None:
    numbers = 1 + np.arange(size, dtype=np.float32)

    def run(comm: Communicator) -> None:
        mine = numbers * (1 + comm.rank)
        assert np.allclose(comm.all_reduce(mine), 6 * numbers, rtol=1e-5)
        assert comm.stats.frames_up == 0
        assert np.array_equal(comm.broadcast(mine, 2), 3 * numbers)
        assert np.array_equal(comm.all_gather(mine)[1], 2 * numbers)
        assert comm.all_gather_bytes(bytes(comm.rank * size)) == [bytes(rank * size) for rank in range(RANKS)]
        comm.barrier()
        first, second = comm.all_reduce_segments([Int32(np.full(size, 7, np.int32)), Floats(mine, mean=True)])
        assert (first == 21).all() and np.allclose(second, 2 * numbers, rtol=1e-5)
        shared = comm.empty(size)
        shared[:] = 1 + comm.rank
        assert (comm.all_reduce(shared, out=shared) == 6).all()

    group.run(run)
    assert {comm.stats.collectives for comm in group.comms} == {group.comms[0].stats.collectives}
    assert "p4reduce_worker_shared_memory_bytes" in group.comms[0].metrics()


@pytest.mark.parametrize("step", [1, 6], ids=["in shards", "in one shot"])
@pytest.mark.parametrize("mean", [False, True])
def test_sums_in_memory_have_the_bits_of_their_definition(group: OneHost, mean: bool, step: int) -> None:
    random = np.random.default_rng(54)
    given = []
    for _ in range(RANKS):  # blocks from denormal numbers to near the largest, of some ranks alone, and the last short
        numbers = random.uniform(-1, 1, 8_000).astype(np.float32) * np.repeat(2.0 ** np.arange(-149, 101), 32)
        numbers[random.random(8_000) < 0.1] = -0.0
        numbers.reshape(250, 32)[random.random(250) < 0.4] = -0.0
        given.append(numbers.reshape(250, 32)[::step].reshape(-1)[:-10].astype(np.float32))
    first, end = 1_000 // step, 5_000 // step
    expected = by_numpy([torch.from_numpy(numbers) for numbers in given], 32, 32, mean=mean).numpy()

    def run(comm: Communicator) -> None:
        mine = given[comm.rank].copy()
        (found,) = comm.all_reduce_segments([Floats(mine, mean=mean)])
        (part,) = comm.all_reduce_segments([Floats(mine, mean=mean, part=(first * comm.rank, end))])
        comm.all_reduce_segments([Floats(mine, mean=mean, out=mine)])
        for total, numbers in ((found, expected), (part, expected[first * comm.rank : end]), (mine, expected)):
            assert np.array_equal((total + np.float32(0)).view(np.uint32), (numbers + np.float32(0)).view(np.uint32))

    group.run(run)


@pytest.mark.parametrize(("make", "size"), [(OneHost, 100), (OneHost, 40), (LocalGroup, 100)])
def test_later_sums_of_segments_alike_have_their_own_data(
    make: Callable[[int], OneHost | LocalGroup], size: int
) -> None:
    def given(rank: int, turn: int) -> tuple[list[NDArray[Any]], ...]:
        random = np.random.default_rng([rank, turn])
        some = np.repeat(random.integers(0, 2, 9), size)  # the others are blocks of zeros
        numbers = random.integers(-99, 99, 9 * size) * some
        return numbers.astype(np.float32), numbers[:99].astype(np.float16), numbers.astype(np.int32).reshape(9, size)

    def run(comm: Communicator) -> None:
        for turn in range(9):
            single, half, whole = given(comm.rank, turn)
            segments = [Floats(single, mean=True, out=single), Floats(half, part=(10, 90)), Int32(whole)]
            found = comm.all_reduce_segments(segments, name="three" if turn % 2 else None, agreement=str(turn // 3))
            a, b, c = (sum(rows) for rows in zip(*(given(rank, turn) for rank in range(RANKS)), strict=True))
            assert found[0] is single and np.allclose(single, a / RANKS, rtol=1e-5)
            assert np.array_equal(found[1], b[10:90]) and np.array_equal(found[2], c)

    with make(RANKS) as group:
        group.run(run)


@pytest.mark.parametrize("make", [OneHost, LocalGroup])
def test_a_sum_that_has_ended_keeps_no_tensor(make: Callable[[int], OneHost | LocalGroup]) -> None:
    def run(comm: Communicator) -> list[object]:
        given = [np.ones(900, dtype) for dtype in (np.float32, np.float16, np.int32)]
        seen = [weakref.ref(array) for array in given]
        seen += [weakref.ref(comm.all_reduce(array)) for array in given]
        comm.all_reduce(given[0], out=given[0])
        comm.all_reduce_segments([Floats(given[0], out=given[0]), Floats(given[1]), Int32(given[2])])
        comm.barrier()
        given.clear()
        return [array() for array in seen]

    with make(RANKS) as group:
        assert group.run(run) == RANKS * [6 * [None]]


@pytest.mark.parametrize("make", [OneHost, LocalGroup])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int32])
def test_sums_of_torch_s_types_are_kept(make: Callable[[int], OneHost | LocalGroup], dtype: torch.dtype) -> None:
    def run(comm: Communicator) -> int:
        for turn in range(4):
            tensor = torch.arange(turn, turn + 33).to(dtype)
            given, out = tensor.clone().requires_grad_(turn == 1 and dtype.is_floating_point), torch.empty_like(tensor)
            total = comm.all_reduce(given, out={2: given, 3: out}.get(turn))
            assert torch.equal(total, RANKS * tensor) and total.dtype == dtype
        return len(comm._plans.kept)

    with make(RANKS) as group:
        assert group.run(run) == RANKS * [1]


def test_few_large_sums_are_kept_for_those_alike(group: OneHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plans, "MOST", 5)
    monkeypatch.setattr(Plans, "MOST_BLOCKS", 100)

    def run(comm: Communicator) -> tuple[list[int], list[int]]:
        kept = []
        for sizes in (range(1, 9), range(1_280, 1_600, 32)):
            for size in sizes:
                comm.all_reduce(np.ones(size, np.float32))
            kept.append([contribution.elements for contribution in comm._plans.kept.values()])
        return kept[0], kept[1]

    assert group.run(run) == RANKS * [([4, 5, 6, 7, 8], [1_504, 1_536, 1_568])]


def test_ranks_in_different_turns_do_not_meet_in_the_same_call(group: OneHost) -> None:
    def run(comm: Communicator) -> list[float]:
        found = []
        for turn in range(60):
            if turn % RANKS == comm.rank:
                time.sleep(0.001)
            comm.barrier()
            found.append(float(comm.all_reduce(np.array([turn + comm.rank], np.float32))[0]))
        return found

    assert group.run(run) == RANKS * [[3.0 * turn + 3 for turn in range(60)]]


@pytest.mark.fault("without a switch, all ranks refuse for one reason: each has its own error, the next call is made")
@pytest.mark.parametrize("refusing", [{1}, set(range(RANKS))])
def test_a_refusal_is_that_of_all_and_the_next_call_is_made(group: OneHost, refusing: set[int]) -> None:
    def run(comm: Communicator) -> float:
        refuses = comm.rank in refusing
        with pytest.raises(NotFiniteError if refuses else PeerRefusedError) as caught:
            comm.all_reduce(np.array([np.inf if refuses else 1.0], np.float32))
        error = caught.value
        reasons = error.reasons if isinstance(error, PeerRefusedError) else comm.refuse(error)
        assert reasons == dict.fromkeys(refusing, Reason.NOT_FINITE)
        return float(comm.all_reduce(np.ones(1, np.float32))[0])

    assert group.run(run) == RANKS * [3.0]
    assert group.comms[0].stats.refused == 1


@pytest.mark.fault("without a switch, ranks call different collectives: all get an error that names each call")
def test_different_calls_are_found_and_named() -> None:
    told = r"ranks 0, 1: all_reduce of 3 float32 \(operation 0.*rank 2: all_reduce of 4 float32"

    def run(comm: Communicator) -> None:
        with pytest.raises(CollectiveMismatchError, match=told):
            comm.all_reduce(np.ones(3 + comm.rank // 2, np.float32))

    with OneHost(RANKS) as group:
        group.run(run)


@pytest.mark.fault("without a switch, a rank does not call: the others' error names it in time, and a log line before")
def test_a_rank_that_does_not_call_is_named_in_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(memory_path, "LOG_AFTER_S", 0.05)

    def run(comm: Communicator) -> None:
        if comm.rank == 1:
            return
        with pytest.raises(CollectiveTimeoutError, match=r"did not finish in 0.5 s: rank 1 of this host did not call"):
            comm.barrier(timeout_s=0.5)

    with OneHost(RANKS) as group:
        group.run(run)
    assert any("s in barrier (operation 0" in text and "rank 1 of this host" in text for text in caplog.messages)


@pytest.mark.fault("without a switch, a rank leaves while others wait for it: they get an error that names it")
def test_a_rank_that_has_left_is_named() -> None:
    def run(comm: Communicator) -> None:
        if comm.rank == 1:
            comm.close(wait=False)
            return
        with pytest.raises(CollectiveError, match="rank 1 of this host"):
            comm.all_reduce(np.ones(5, np.float32), timeout_s=LIMIT_S)

    with OneHost(RANKS) as group:
        group.run(run)


@pytest.mark.fault("without a switch, a rank's process ends: the others get HostLostError")
def test_a_rank_whose_process_has_ended_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with OneHost(RANKS) as group:
        for comm in group.comms[:2]:
            assert comm.hosts is not None and comm.hosts.sums is not None
            memory = comm.hosts.sums.memory
            monkeypatch.setattr(memory, "_watched", [(7, lambda: True)])
            monkeypatch.setattr(memory, "_processes", (1, 2, 7))

        def run(comm: Communicator) -> None:
            if comm.rank < 2:
                with pytest.raises(HostLostError, match="rank 2 of this host, process 7, has ended"):
                    comm.all_reduce(np.ones(5, np.float32), timeout_s=LIMIT_S)

        group.run(run)
        monkeypatch.undo()

"""Sums over hosts have the bits that they have when every rank sends for itself, and fail as those do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from p4reduce.codecs import Floats
from p4reduce.communicator import Communicator
from p4reduce.doctor import checks
from p4reduce.errors import (
    CollectiveError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    InvalidTensorError,
    NotFiniteError,
    P4ReduceError,
    PeerRefusedError,
)
from p4reduce.paths.hosts.copies import Copies
from p4reduce.paths.hosts.sums import HostSums
from p4reduce.pytorch.backend import sums as backend
from p4reduce.testing.local_group import LocalGroup
from rigs.host_group import HostGroup
from rigs.limits import LIMIT_S
from rigs.tree_group import TreeGroup

PLACEMENTS = ([0, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 1], [0, 1, 1, 1], [0, 1, 1, 2], [0, 0, 0, 1, 1, 2, 2, 2])
SIZE = 70_003
"""Elements of the tensors summed over hosts in each format, 8 bits too, with this limit and pieces of this size."""
FEWEST_HOST_BYTES, PIECE_WORDS = 1 << 16, 1 << 13


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p4reduce.paths.switch.SwitchPath.least_host_bytes", FEWEST_HOST_BYTES)
    monkeypatch.setattr("p4reduce.paths.hosts.copies.PIECE_WORDS", PIECE_WORDS)


def gradient(rank: int, size: int = SIZE, density: float = 0.5) -> NDArray[np.float32]:
    """Normal numbers of many magnitudes; blocks of 64 are zero but for this share."""
    rng = np.random.default_rng([rank, 37])
    numbers = rng.normal(size=size) * 2.0 ** rng.integers(-20, 20, size)
    held = np.repeat(rng.random(-(-size // 64)) < density, 64)[:size]
    return np.where(held, numbers, 0).astype(np.float32)


def collectives(comm: Communicator) -> dict[str, Any]:
    """Call collectives of each kind and format; return the bytes of their results."""
    mine = gradient(comm.rank)
    found: dict[str, Any] = {}
    for bits in (32, 16, 8):
        found[f"float32 in {bits}"] = comm.all_reduce(mine, bits=bits)  # type: ignore[arg-type]  # of a tuple's
    found["dense"] = comm.all_reduce(gradient(comm.rank, density=1.0))
    found["nearly empty"] = comm.all_reduce(gradient(comm.rank, density=0.01))
    found["float16"] = comm.all_reduce(np.clip(mine, -100, 100).astype(np.float16))
    found["bfloat16"] = comm.all_reduce(torch.from_numpy(mine).bfloat16()).view(torch.int16).numpy()
    integers = np.random.default_rng(comm.rank).integers(-(2**31), 2**31, SIZE).astype(np.int32)
    found["int32"] = comm.all_reduce(integers)
    found["out"] = comm.all_reduce(mine.copy(), out=np.full_like(mine, 7))
    in_place = mine.copy()
    found["in place"] = comm.all_reduce(in_place, out=in_place)
    signed = np.where(mine == 0, np.float32(-0.0 if comm.rank % 2 else 0), mine)
    given = {"float32": signed, "float16": found["float16"], "int32": integers}
    for name, numbers in given.items():
        shared = comm.empty(SIZE + 1, numbers.dtype)[2:]  # which begins where no block does
        shared[:] = numbers[:-1]
        found[f"shared {name}"] = comm.all_reduce(shared)
        found[f"shared {name} in place"] = comm.all_reduce(shared, out=shared).copy()
    segments = [Floats(mine, 16, mean=True), Floats(mine[:1001]), Floats(mine[:0]), Floats(mine[:99], 8)]
    for number, total in enumerate(comm.all_reduce_segments(segments)):
        found[f"segment {number}"] = total
    kept = comm.all_reduce_segments([Floats(mine, 8, keep_sent=True)])[0]
    found["total"], found["sent"] = kept
    begin, end = np.array([comm.rank, comm.rank + 1]) * SIZE // comm.world_size
    found["part"] = comm.all_reduce_segments([Floats(mine, part=(int(begin), int(end)))])[0]
    found["gathered"] = comm.all_gather(mine[:17_501])
    found["broadcast"] = comm.broadcast(mine, root=comm.world_size - 1)
    found["small"] = comm.all_reduce(mine[:10])
    return {name: np.asarray(array).tobytes() for name, array in found.items()}


@pytest.fixture(scope="module")
def alone() -> dict[int, list[dict[str, Any]]]:
    """The results of every rank when each sends for itself, by world size."""
    found = {}
    for world_size in {len(placement) for placement in PLACEMENTS}:
        with LocalGroup(world_size) as group:
            found[world_size] = group.run(collectives)
    return found


@pytest.mark.parametrize("placement", PLACEMENTS, ids=str)
def test_sums_have_the_same_bits_wherever_ranks_are(
    monkeypatch: pytest.MonkeyPatch, alone: dict[int, list[dict[str, Any]]], placement: Sequence[int]
) -> None:
    with HostGroup(monkeypatch, placement) as group:
        for found, expected in zip(group.run(collectives), alone[len(placement)], strict=True):
            assert [name for name in expected if found[name] != expected[name]] == []
        assert all(group.hosts_of(comm).plan is not None for comm in group.comms)
        assert all(group.hosts_of(comm).shared_bytes > 4 * SIZE for comm in group.comms)


@pytest.mark.parametrize(
    ("placement", "shard_group"),
    [([0] * 8 + [1] * 8, LocalGroup), ([0, 0, 1, 1, 2, 2, 3, 3], TreeGroup)],
    ids=["8 ranks a host", "hosts in two racks"],
)
def test_hosts_of_many_ranks_and_in_racks(
    monkeypatch: pytest.MonkeyPatch, placement: Sequence[int], shard_group: type[LocalGroup]
) -> None:
    with LocalGroup(len(placement)) as group:
        expected = group.run(lambda comm: comm.all_reduce(gradient(comm.rank)).tobytes())
    with HostGroup(monkeypatch, placement, shard_group=shard_group) as hosts:
        assert hosts.run(lambda comm: comm.all_reduce(gradient(comm.rank)).tobytes()) == expected
        assert len(hosts.shards.groups) == placement.count(0)
        shared = {comm.metrics()["p4reduce_worker_shared_memory_bytes"] for comm in hosts.comms}
        assert min(shared) > 4 * SIZE


def test_shared_arrays_are_neither_copied_in_nor_out_on_one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with HostGroup(monkeypatch, [0, 0, 0]) as group:

        def work(comm: Communicator) -> tuple[bytes, int]:
            shared = comm.empty((2, SIZE))
            shared[:] = gradient(comm.rank, 2 * SIZE).reshape(2, SIZE)
            total = comm.all_reduce(shared, out=shared)
            assert total is shared
            found, tensor = total.tobytes(), torch.from_numpy(shared)
            backend.over_switch(comm, [tensor.fill_(comm.rank)], None, average=True, timeout_s=LIMIT_S)
            assert (shared == 1).all()
            return found, group.hosts_of(comm).shared_bytes

        with LocalGroup(3) as expected:
            sums = expected.run(lambda comm: comm.all_reduce(gradient(comm.rank, 2 * SIZE)).tobytes())
        for (found, used), total in zip(group.run(work), sums, strict=True):
            assert found == total
            assert used < 4 * 2 * SIZE * 3 + (1 << 20)  # of the arrays, and of tables


@pytest.mark.parametrize("placement", [[0, 0, 1, 1], [0, 0, 0, 0]], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_shared_arrays_of_some_ranks_lie_anywhere_and_have_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, placement: Sequence[int], dtype: type[np.generic]
) -> None:
    """Rank 1 gives another place than rank 0, rank 2 an ordinary array; all in place, or only rank 0."""

    def given(rank: int) -> Any:
        return np.clip(gradient(rank), -100, 100).astype(dtype)

    def work(comm: Communicator) -> list[bytes]:
        found, rows = [], [comm.empty(SIZE + 2, dtype) for _ in range(3)]
        shared = np.empty(SIZE, dtype) if comm.rank == 2 else rows[comm.rank % 3][2:]
        for in_place in ({0, 1, 2, 3}, {0}, {2}):
            for each in rows:
                each[:] = 7
            shared[:] = given(comm.rank)
            total = comm.all_reduce(shared, out=shared if comm.rank in in_place else None)
            found.append(total.tobytes())
            assert total is shared or np.array_equal(shared, given(comm.rank))
            assert all((each == 7).sum() >= 2 for each in rows)
        return found

    with LocalGroup(4) as alone:
        expected = alone.run(lambda comm: comm.all_reduce(given(comm.rank)).tobytes())
    with HostGroup(monkeypatch, placement) as group:
        assert group.run(work) == [3 * [total] for total in expected]


def test_the_memory_of_an_array_that_is_gone_is_that_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def addresses(comm: Communicator) -> list[int]:
        first, second = comm.empty(5_000), comm.empty(1_000)
        kept, tensor = first[7:9], torch.from_numpy(second)
        found = [first.ctypes.data]
        del first, second
        found.append(comm.empty(1).ctypes.data)  # a part of the first, and a tensor of the second, are there
        del kept
        found.append(comm.empty(4_000).ctypes.data)
        assert tensor.shape == (1_000,)
        return found

    with HostGroup(monkeypatch, [0, 0]) as group:
        for first, beside, again in group.run(addresses):
            assert beside == first + 20_480 + 4_096 and again == first


def test_arrays_of_unequal_shapes_are_an_error_that_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(comm: Communicator) -> None:
        with pytest.raises(CollectiveMismatchError, match=r"the layout of this rank is 'empty\|.*<f4\(6,") as caught:
            comm.empty((6, 1) if comm.rank else 6)
        assert ("f4(6, 1)" in str(caught.value)) == bool(comm.rank)

    with HostGroup(monkeypatch, [0, 0]) as group:
        group.run(work)


def test_a_sum_over_hosts_is_another_call_than_one_of_each_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(comm: Communicator) -> None:
        comm.all_reduce(gradient(comm.rank))
        if comm.rank == 1:
            group.hosts_of(comm).sums = None
        with pytest.raises(CollectiveMismatchError):
            comm.all_reduce(gradient(comm.rank))

    with HostGroup(monkeypatch, [0, 0, 1]) as group:
        group.run(work)


def test_after_an_error_and_the_end_what_a_rank_writes_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with HostGroup(monkeypatch, [0, 0, 1]) as group:
        arrays = group.run(lambda comm: comm.empty(SIZE))
        sums = [group.sums_of(comm) for comm in group.comms[:2]]
        arrays[0][:] = arrays[1][:] = 1
        begins = [each.memory.array_at(array) for each, array in zip(sums, arrays[:2], strict=True)]
        assert begins[0] is not None and begins[1] is not None
        seen = sums[1].memory.data[begins[0] :][:SIZE].view(np.float32)
        seen_by_0 = sums[0].memory.data[begins[1] :][:SIZE].view(np.float32)
        assert (seen == 1).all() and (seen_by_0 == 1).all()
        group.comms[0].failure.fail_of(KeyboardInterrupt(), "a sum", sums[0].set_failed)
        arrays[0][:] = 2
        assert (seen == 1).all() and (arrays[0] == 2).all()
        group.comms[1].close(wait=False)
        arrays[1][:] = 3
        assert (seen_by_0 == 1).all() and (arrays[1] == 3).all()


def test_what_no_array_can_be_made_of_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(comm: Communicator) -> str:
        with pytest.raises((ValueError, PeerRefusedError), match="negative|refused"):
            comm.empty(-1 if comm.rank else 1)
        with pytest.raises((InvalidTensorError, PeerRefusedError)) as caught:
            comm.empty(3, np.float32 if comm.rank else object)
        return f"{caught.value}{comm.empty(3, np.int8).dtype}"

    with HostGroup(monkeypatch, [0, 0]) as group:
        texts = group.run(work)
    assert "dtype is object; give float32, float16, int32" in texts[0] and "rank 0: a tensor that can" in texts[1]


def test_arrays_are_allocated_in_the_order_of_the_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, original = [], HostSums.empty

    def allocate(self: HostSums, size: int) -> Any:
        with ThreadPoolExecutor() as other:  # of another thread no collective may begin here
            alone.append(not other.submit(group.comms[self.place].queue.drain, 0.0).result())
        return original(self, size)

    monkeypatch.setattr(HostSums, "empty", allocate)
    with HostGroup(monkeypatch, [0, 0]) as group:
        group.run(lambda comm: comm.empty(SIZE))
    assert alone == [True, True]


def test_an_array_outlives_its_communicator_and_is_summed_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with HostGroup(monkeypatch, [0, 0]) as first:
        arrays = first.run(lambda comm: comm.empty(SIZE))
        for rank, array in enumerate(arrays):
            array[:] = rank + 1
        with HostGroup(monkeypatch, [0, 0]) as second:
            second.run(lambda comm: comm.empty(SIZE))
            totals = second.run(lambda comm: comm.all_reduce(arrays[comm.rank]))
    assert all((total == 3).all() for total in totals)
    arrays[0] += 4
    assert (arrays[0] == 5).all() and (arrays[1] == 2).all()
    with HostGroup(monkeypatch, [0, 0]) as third:
        totals = third.run(lambda comm: comm.all_reduce(arrays[comm.rank], out=arrays[comm.rank]))
    assert all((total == 7).all() for total in totals)


def test_each_block_of_a_host_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with HostGroup(monkeypatch, [0, 0, 1, 1]) as group:
        blocks = group.run(lambda comm: (comm.all_reduce(gradient(comm.rank)), comm.stats.blocks_up)[1])
    held = [gradient(rank) != 0 for rank in range(4)]
    for host in (0, 1):
        either = held[2 * host] | held[2 * host + 1]
        expected = sum(bool(either[at : at + 32].any()) for at in range(0, SIZE, 32))
        sent = blocks[2 * host] + blocks[2 * host + 1]
        assert expected <= sent <= 1.05 * expected  # some of zeros, where a RESULT would grow too much


@pytest.mark.parametrize("searched", [False, True])
def test_a_nan_refuses_on_all_hosts_and_names_the_rank(monkeypatch: pytest.MonkeyPatch, searched: bool) -> None:
    """Also in the collective that looks for hosts, which the next one then does."""

    def refused(comm: Communicator) -> str:
        mine = gradient(comm.rank)
        if searched:
            comm.all_reduce(mine)
        if comm.rank == 1:
            mine[3] = np.nan
        with pytest.raises((NotFiniteError, PeerRefusedError)) as caught:
            comm.all_reduce(mine)
        assert (group.hosts_of(comm).plan is not None) == searched
        return f"{caught.value}; {run_alone(comm, group)}"

    with HostGroup(monkeypatch, [0, 0, 1, 1]) as group:
        texts = group.run(refused)
    assert "element [3]" in texts[1] and all(text.endswith("; over hosts") for text in texts)
    assert all("all_reduce" in text and "rank 1: a NaN" in text for text in (texts[0], *texts[2:]))


def outcomes(group: HostGroup, fault: Callable[[Communicator], object], sizes: Sequence[int] = (SIZE,)) -> list[str]:
    """Return what each rank's second sum raises, or "summed"; `fault` happens before it, `sizes` are those of ranks.

    It may take 20 times as long as the first one, for which the hosts are found, and at least 2 s.
    """

    def run(comm: Communicator) -> str:
        begun = time.monotonic()
        comm.all_reduce(gradient(comm.rank))
        limit_s = max(2.0, 20 * (time.monotonic() - begun))
        fault(comm)
        comm.barrier()
        try:
            comm.all_reduce(gradient(comm.rank, sizes[comm.rank % len(sizes)]), timeout_s=limit_s)
        except (P4ReduceError, MemoryError) as error:
            return f"{type(error).__name__}: {error}"
        else:
            return "summed"
        finally:
            comm.close(wait=False)

    return group.run(run)


@pytest.mark.parametrize("other", [SIZE - 1, 10], ids=["over hosts", "small"])
def test_ranks_of_one_host_that_call_differently_are_named(monkeypatch: pytest.MonkeyPatch, other: int) -> None:
    with HostGroup(monkeypatch, [0, 0, 1, 1]) as group:
        for text in outcomes(group, lambda comm: None, (SIZE, other, SIZE, SIZE)):
            assert text.startswith("CollectiveMismatchError") and "ranks 0, 2, 3: " in text and "; rank 1: " in text


@pytest.mark.parametrize(
    ("placement", "rank", "owner", "step"),
    [([0, 0, 0, 0], 2, HostSums, "sum"), ([0, 0, 1], 0, Copies, "copy_in"), ([0, 0, 1], 1, Copies, "copy_in")],
    ids=["its shard", "a piece of a rank that sends", "a piece of one that does not"],
)
@pytest.mark.fault("a rank fails in a sum over its host: the others of the host get an error that names it")
def test_a_failure_of_a_rank_is_an_error_on_its_host(
    monkeypatch: pytest.MonkeyPatch, placement: Sequence[int], rank: int, owner: Any, step: str
) -> None:
    original = getattr(owner, step)
    failed: list[threading.Thread] = []

    def failing(self: Any, *arguments: Any) -> Any:
        if threading.current_thread() is failed[0] and getattr(self, "_copied_in", 1):
            raise MemoryError("no memory")
        return original(self, *arguments)

    def fault(comm: Communicator) -> None:
        if comm.rank == rank:
            failed.append(threading.current_thread())
            monkeypatch.setattr(owner, step, failing)

    with HostGroup(monkeypatch, placement) as group:
        texts = outcomes(group, fault)
    assert texts[rank] == "MemoryError: no memory"
    others = [text for place, text in enumerate(texts) if placement[place] == 0 and place != rank]
    assert all(f"rank {rank} of this host failed in it" in text for text in others)


def test_without_room_for_shards_each_rank_sends_for_itself(
    monkeypatch: pytest.MonkeyPatch, alone: dict[int, list[dict[str, Any]]], caplog: pytest.LogCaptureFixture
) -> None:
    with HostGroup(monkeypatch, [0, 0, 1, 1], full=True) as group:
        found = group.run(lambda comm: comm.all_reduce(gradient(comm.rank)).tobytes())
        assert group.hosts_of(group.comms[0]).sums is None
    assert set(found) == {alone[4][0]["float32 in 32"]}
    assert "every rank sends for itself" in caplog.text and "no free slots" in caplog.text


def test_hosts_of_one_rank_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with HostGroup(monkeypatch, [0, 1, 2]) as group:
        group.run(lambda comm: comm.all_reduce(gradient(comm.rank)))
        assert all(group.hosts_of(comm).plan is None for comm in group.comms)
        assert not group.shards.groups


def test_a_small_collective_does_not_look_for_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    with HostGroup(monkeypatch, [0, 0]) as group:
        group.run(lambda comm: comm.all_reduce(np.ones(FEWEST_HOST_BYTES // 4 - 32, np.float32)))
        assert all(group.hosts_of(comm).plan is None for comm in group.comms)
        group.run(lambda comm: comm.all_reduce(np.ones(FEWEST_HOST_BYTES // 4, np.float32)))
        assert all(group.hosts_of(comm).plan is not None for comm in group.comms)


def test_the_windows_of_a_host_s_shards_share_its_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Together they begin with the 64 slots of a rank that sends for itself."""
    with HostGroup(monkeypatch, [0, 0, 1, 1], slots=256) as group:
        group.run(Communicator.find_hosts)
        paths = [group.sums_of(comm).shard_path for comm in group.comms]
        assert [path is not None and path.over_switch.window.slots for path in paths] == [32] * 4


def test_what_a_rank_holds_for_its_host_ends_with_the_communicator(monkeypatch: pytest.MonkeyPatch) -> None:
    with HostGroup(monkeypatch, [0, 0, 1, 1]) as group:
        group.run(lambda comm: comm.all_reduce(gradient(comm.rank)))
    assert all(group.hosts_of(comm).sums is None for comm in group.comms)
    assert all(group.hosts_of(comm).shared_bytes == 0 for comm in group.comms)
    assert group.shards.removed == 4


def test_a_lost_membership_of_a_shard_ends_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(comm: Communicator) -> None:
        if comm.rank == 3:
            monkeypatch.setattr(group.hosts_of(comm), "failure", lambda: CollectiveError("the shard's job was reset"))

    with HostGroup(monkeypatch, [0, 0, 1, 1]) as group:
        texts = outcomes(group, fault)
    assert texts[3] == "CollectiveError: the shard's job was reset" and "rank 3 of this host failed" in texts[2]


def test_a_host_of_more_ranks_than_bits_is_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p4reduce.paths.hosts.plan.MOST_RANKS", 2)
    with HostGroup(monkeypatch, [0, 0, 0, 0, 0]) as group:
        totals = group.run(lambda comm: comm.all_reduce(np.full(SIZE, 10.0**comm.rank, np.float32)))
        plan = group.hosts_of(group.comms[0]).plan
    assert plan is not None and plan.hosts == ((0, 1), (2, 3), (4,))
    assert all((total == 11111).all() for total in totals)


def test_a_collective_within_one_over_hosts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal's handler may call it while the rank waits for another's part."""

    def fault(comm: Communicator) -> None:
        if comm.rank == 0:
            monkeypatch.setattr(group.sums_of(comm).memory, "wait", lambda *arguments: comm.all_reduce(gradient(0)))

    with HostGroup(monkeypatch, [0, 1, 1]) as group:
        assert "within another one" in outcomes(group, fault)[0]


@pytest.mark.parametrize(
    ("placement", "first", "last"),
    [
        ([0, 0, 1], "ranks 0, 1 of 3", "of large tensors each of 2 hosts sends the sum, in 1 parts"),
        ([0, 0], "ranks 0, 1 of 2", "nothing is sent"),
        ([0, 1], "each rank sends for itself", "no two ranks can share memory"),
    ],
)
def test_doctor_says_which_ranks_share_a_host_and_has_the_rest_sent(
    monkeypatch: pytest.MonkeyPatch, placement: Sequence[int], first: str, last: str
) -> None:
    with HostGroup(monkeypatch, placement) as group:
        found = group.run(lambda comm: checks._hosts([], comm))[0].found
        assert found.startswith(first) and found.endswith(last)
        blocks = group.run(lambda comm: (comm.all_reduce(gradient(comm.rank)), comm.stats.blocks_up)[1])
    assert min(blocks) > SIZE / 100


class Interrupted(BaseException):
    """An exception like KeyboardInterrupt."""


def test_an_interrupt_of_the_search_ends_the_communicators(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> str:
        raise Interrupted

    def run(comm: Communicator) -> str:
        if comm.rank == 1:
            monkeypatch.setattr(group.hosts_of(comm), "_map", interrupted)
        with pytest.raises((CollectiveError, Interrupted)) as caught:
            comm.all_reduce(gradient(comm.rank))
        with pytest.raises(CollectiveError):
            comm.all_reduce(gradient(comm.rank))
        comm.close(wait=False)
        return type(caught.value).__name__

    with HostGroup(monkeypatch, [0, 0, 1, 1], timeout_s=2.0) as group:
        found = group.run(run)
    assert found[1] == "Interrupted" and set(found) == {"Interrupted", "CollectiveTimeoutError"}


def test_an_error_in_the_search_lets_every_rank_send_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*arguments: object) -> None:
        raise MemoryError("no memory")

    monkeypatch.setattr("p4reduce.paths.hosts.find.HostMemory", failing)
    with HostGroup(monkeypatch, [0, 0, 1, 1]) as group:
        assert group.run(lambda comm: run_alone(comm, group)) == 4 * ["alone"]


def run_alone(comm: Communicator, group: HostGroup) -> str:
    """Sum twice."""
    for _ in range(2):
        assert (comm.all_reduce(np.ones(SIZE, np.float32)) == 4).all()
    return "alone" if group.hosts_of(comm).sums is None else "over hosts"


def test_the_search_keeps_the_time_limit_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(comm: Communicator) -> str:
        if comm.rank == 1:
            return "missing"
        times = iter([0.0])
        monkeypatch.setattr(comm, "_clock", lambda: next(times, 0.2))  # which leaves the search 0.3 s
        with pytest.raises(CollectiveTimeoutError) as caught:
            comm.all_reduce(gradient(comm.rank), timeout_s=0.5)
        return str(caught.value)

    with HostGroup(monkeypatch, [0, 0], timeout_s=600.0) as group:
        assert " in 0.5 s" in group.run(run)[0]
        for comm in group.comms:
            comm.close(wait=False)


def test_the_collectives_of_the_search_look_for_no_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p4reduce.paths.switch.SwitchPath.least_host_bytes", 1)
    with HostGroup(monkeypatch, [0, 0, 1, 1]) as group:
        assert group.run(lambda comm: run_alone(comm, group)) == 4 * ["over hosts"]
        assert len(group.shards.groups) == 2

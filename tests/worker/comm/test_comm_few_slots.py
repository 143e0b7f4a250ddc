"""A call that needed few blocks last time opens few slots; what is remembered is the same on all ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from operator import ne
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray

from p4reduce.codecs import Floats, Int32
from p4reduce.communicator import Communicator
from p4reduce.errors import CollectiveMismatchError, InvalidTensorError, PeerRefusedError
from p4reduce.paths.window import Window
from p4reduce.protocol.call import Call
from p4reduce.protocol.rtt import RoundTrip
from p4reduce.testing.local_group import LocalGroup
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce.testing.world import Member, NetworkConditions, RootSwitches, World
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from p4reduce_contracts.wire.calls import CodecId, Kind
from p4reduce_contracts.wire.geometry import DEFAULT
from rigs.cut_runs import ResettableGroup, slow_clock

BLOCKS, ELEMENTS = 4096, 4096 * 32
STEP = 10
"""Every so many blocks is held by a rank: 410 of 4096 take 13 slots for four rounds of 8 columns."""


def tensor(kind: str, rank: int) -> NDArray[np.float32]:
    given = np.zeros((BLOCKS, 32), np.float32)
    if kind == "dense":
        given[:] = rank + 1
    elif kind == "sparse":
        given[rank % 2 * STEP :: 2 * STEP] = rank + 1  # ranks hold different blocks: the union counts
    elif kind == "scattered":
        given[np.random.default_rng(0).permutation(BLOCKS)[: BLOCKS // STEP]] = rank + 1
    return given.reshape(-1)


def slots_of(comm: Communicator, call: Callable[..., Any], *arguments: Any, **keywords: Any) -> tuple[int, Any]:
    """The slots that a call's collective has opened, those whose round number has grown, and what it returns."""
    before = list(comm.over_switch.slot_rounds)
    result = call(*arguments, **keywords)
    return sum(map(ne, before, comm.over_switch.slot_rounds)), result


def slots_used(comm: Communicator, kinds: str) -> list[int]:
    found = []
    for kind in kinds.split():
        expected = sum(tensor(kind, rank) for rank in range(comm.world_size))
        slots, total = slots_of(comm, comm.all_reduce, tensor(kind, comm.rank))
        assert np.array_equal(total, expected)
        found.append(slots)
    return found


@pytest.mark.parametrize(
    ("kinds", "slots"),
    [
        ("sparse sparse dense dense sparse sparse", [64, 13, 52, 64, 64, 13]),
        ("scattered scattered", [64, 13]),
        ("zeros zeros zeros dense dense", [64, 1, 1, 64, 64]),
    ],
)
def test_the_slots_used_are_those_of_the_last_equal_call(kinds: str, slots: list[int]) -> None:
    with LocalGroup(3, slots=64) as group:
        assert group.run(lambda comm: slots_used(comm, kinds)) == [slots] * 3


@pytest.mark.parametrize("eager", [True, False])
def test_a_dense_call_after_a_sparse_one_soon_has_the_window(eager: bool) -> None:
    """The time is virtual, of round trips alone: at most 1.15 times as long as a call that opens the window."""

    def seconds(slots: int | None) -> float:
        switch = ReferenceSwitch(DEFAULT, 64)
        switch.add_job(1, 1, 2, 0, 64, [0, 1])
        members = []
        for rank in range(2):
            lease = Lease(
                1, "test", 1, rank, 2, 64, DEFAULT.columns, DEFAULT.block_words, switches=(LeasedSwitch(secret=rank),)
            )
            blocks = Int32(np.ones(4 * ELEMENTS, np.int32)).bind(2, DEFAULT.block_words, False)
            call = Call(0, Kind.ALL_REDUCE, CodecId.INT32, 0, 4 * ELEMENTS)
            members.append(Member(lease, [(blocks, call)], [0] * 64, slots=slots, eager=eager))
        world = World(RootSwitches(switch), members, NetworkConditions(delay_s=0.001, jitter=0.0, start_s=0.0), 0)
        assert all((result[0] == 2).all() for result in (member[0] for member in world.run()))
        return world.first_end

    assert (seconds(4) < 1.15 * seconds(None)) is eager


def test_few_blocks_of_a_name_take_few_frames_from_the_first_call_on() -> None:
    """A small model's step with a compressor has such calls: 16 blocks of 8 columns, from 4 ranks."""

    def rank_main(comm: Communicator) -> list[tuple[int, int, int]]:
        given = np.zeros((BLOCKS, 32), np.int32)
        given[comm.rank : 16 : comm.world_size] = 1
        found = []
        for _ in range(2):
            before = comm.stats.copy()
            slots, _ = slots_of(comm, comm.all_reduce_segments, [Int32(given.reshape(-1))], name="step")
            spent = comm.stats - before
            found.append((slots, spent.rounds, spent.frames_up))
        return found

    with LocalGroup(4, clock=slow_clock) as group:
        assert group.run(rank_main) == [[(1, 3, 3)] * 2] * 4


def test_ranks_with_different_windows_are_told_where_they_open_equally_many_slots() -> None:
    """Slots split up to the window: else each rank would wait for slots that the other does not open."""

    def rank_main(comm: Communicator) -> None:
        comm.path.window = Window(comm.lease.slot_count if comm.rank else 1)
        with pytest.raises(CollectiveMismatchError):
            comm.all_reduce_segments([Int32(np.ones(ELEMENTS, np.int32))], name="step", timeout_s=5)

    with LocalGroup(2, slots=64) as group:
        group.run(rank_main)
        for comm in group.comms:
            comm.close(wait=False)


def test_a_new_epoch_begins_with_no_remembered_calls() -> None:
    """A rank may have joined that was not there before, or one not have seen the last collective's end."""
    with ResettableGroup(2, slots=64) as group:
        assert group.run(lambda comm: slots_used(comm, "sparse sparse")) == [[64, 13]] * 2
        group.reset()
        group.run(Communicator.barrier)
        assert group.run(lambda comm: slots_used(comm, "sparse sparse")) == [[64, 13]] * 2


def test_the_least_recent_calls_are_forgotten_first() -> None:
    window = Window(128)
    for call in range(Window.MOST_CALLS):
        window.saw(call, 100, 1000)
    window.saw(0, 100, 1000)
    window.saw(Window.MOST_CALLS, 100, 1000)
    assert [window.slots_of(call, 8) for call in (0, 1, 2, Window.MOST_CALLS)] == [4, 64, 4, 4]


@pytest.mark.parametrize(("switches", "queued", "grown"), [(1, False, 256), (1, True, 128), (2, True, 256)])
def test_the_window_grows_above_128_slots_a_switch_unless_frames_are_queued(
    monkeypatch: pytest.MonkeyPatch, switches: int, queued: bool, grown: int
) -> None:
    monkeypatch.setattr(RoundTrip, "queued", queued)

    def rank_main(comm: Communicator) -> int:
        for _ in range(4):
            comm.all_reduce(np.ones(4 * ELEMENTS, np.int32))
        return comm.path.window.slots

    with LocalGroup(2, slots=256 // switches, switches=switches, clock=slow_clock) as group:
        assert group.run(rank_main) == [grown] * 2


@pytest.mark.parametrize(("few", "first"), [(False, 64), (True, 1)])
def test_what_more_than_half_of_the_blocks_needed_opens_the_window(few: bool, first: int) -> None:
    window = Window(128)
    assert window.slots_of("call", 8, few=few) == first
    window.saw("call", 1000, 4000)
    assert window.slots_of("call", 8, few=few) == 32
    window.saw("call", 2001, 4000)
    assert window.slots_of("call", 8, few=few) == 64


def test_calls_that_agree_on_something_new_each_time_are_alike() -> None:
    def rank_main(comm: Communicator) -> list[int]:
        given = [Floats(tensor("sparse", comm.rank))]
        steps = "step 0", "step 1"
        found = [slots_of(comm, comm.all_reduce_segments, given, agreement=step)[0] for step in steps]
        with pytest.raises(CollectiveMismatchError):
            comm.all_reduce_segments(given, agreement=f"rank {comm.rank}")
        return found

    with LocalGroup(2, slots=64) as group:
        assert group.run(rank_main) == [[64, 13]] * 2


def another_size(comm: Communicator) -> None:
    slots_used(comm, "sparse")
    assert slots_of(comm, comm.all_reduce, np.zeros(ELEMENTS // 2, np.float32))[0] == 64


def dense_on_one_rank(comm: Communicator) -> None:
    for _ in range(3):
        given = [Floats(np.zeros(ELEMENTS, np.float32))]
        assert slots_of(comm, comm.all_reduce_segments, given, dense=comm.rank == 1)[0] == 64
    slots_used(comm, "sparse")


def refused(comm: Communicator) -> None:
    slots_used(comm, "dense")
    given = np.zeros(ELEMENTS, np.float32)
    given[7] = np.nan if comm.rank else 0
    with pytest.raises(InvalidTensorError if comm.rank else PeerRefusedError):
        comm.all_reduce(given)
    slots_used(comm, "sparse")


def interrupted(comm: Communicator) -> None:
    """After the collective, on rank 1."""
    with pytest.MonkeyPatch.context() as patch:
        if comm.rank:
            patch.setattr(comm.path, "probe_gso", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt) if comm.rank else contextlib.nullcontext():
            comm.all_reduce(tensor("sparse", comm.rank))


@pytest.mark.parametrize("before", [another_size, dense_on_one_rank, refused, interrupted])
def test_the_ranks_remember_the_last_equal_call_alike(before: Callable[[Communicator], None]) -> None:
    with LocalGroup(2, slots=64) as group:
        group.run(before)
        assert group.run(lambda comm: slots_used(comm, "sparse")) == [[13]] * 2

"""Communicators in threads over the reference switch."""

from __future__ import annotations

import random
import re
import threading
from operator import ne
from typing import Any

import numpy as np
import pytest
import torch

from p4reduce import Communicator
from p4reduce.codecs import Floats, Int32, Lanes
from p4reduce.errors import CollectiveError, CollectiveMismatchError, InvalidTensorError
from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts.wire.geometry import SMALL
from p4reduce_runtime.underlay import ENCAP_BYTES
from rigs.cut_runs import slow_clock
from rigs.scenarios import random_tensors, sum_of_float32


def test_many_segments_in_one_collective() -> None:
    rng = np.random.default_rng(3)
    ternary = [rng.integers(-1, 2, 1001).astype(np.int8) for _ in range(4)]
    floats = [rng.standard_normal((7, 9)).astype(np.float32) for _ in range(4)]
    counts = [rng.integers(-9, 9, 40).astype(np.int32) for _ in range(4)]
    empty = np.zeros(0, np.float32)
    with LocalGroup(4, geometry=SMALL, slots=3) as group:

        def step(comm: Communicator) -> list[np.ndarray]:
            rank = comm.rank
            return comm.all_reduce_segments(
                [Lanes(ternary[rank], 4), Floats(empty), Floats(floats[rank]), Int32(counts[rank])]
            )

        for lanes, nothing, sums, totals in group.run(step):
            assert (lanes == np.sum(ternary, axis=0)).all()
            assert nothing.shape == (0,)
            assert sums.tobytes() == sum_of_float32(floats, 8).tobytes()
            assert (totals == np.sum(counts, axis=0)).all()
        assert group.comms[0].stats.collectives == 1
        assert group.run(lambda comm: comm.all_reduce_segments([])) == [[]] * 4


def test_a_sum_that_takes_several_collectives_has_the_bits_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def sums(comm: Communicator) -> list[bytes]:
        mine = np.random.default_rng(comm.rank).standard_normal((3, 431)).astype(np.float32)
        half, into, strided = torch.from_numpy(mine).bfloat16(), np.empty_like(mine), np.empty((431, 3), np.float32).T
        halves = torch.empty_like(half)
        assert comm.all_reduce(mine, out=into) is into and comm.all_reduce(mine, out=strided) is strided
        assert comm.all_reduce(half, out=halves) is halves
        found = [
            comm.all_reduce(mine),
            into,
            strided,
            *(each.float().numpy() for each in (comm.all_reduce(half), halves)),
        ]
        with pytest.raises(InvalidTensorError, match="give one like the tensor"):
            comm.all_reduce(mine, out=np.empty(9999, np.float32))
        return [each.tobytes() for each in found] + [str(comm.operations).encode()]

    with LocalGroup(2) as group:
        whole = group.run(sums)
    monkeypatch.setattr("p4reduce.collectives.MOST_BYTES", 1024)
    with LocalGroup(2) as group:
        pieces = group.run(sums)
    assert [found[:-1] for found in pieces] == [found[:-1] for found in whole]
    assert [int(found[-1]) for found in (whole[0], pieces[0])] == [6, 25]


@pytest.mark.parametrize("root", [0, 2])
def test_broadcast_moves_bits(root: int) -> None:
    tensors = [np.array([[np.nan, -0.0, rank], [np.inf, 1e-45, 0.0]], np.float64) for rank in range(3)]
    with LocalGroup(3) as group:
        for result in group.run(lambda comm: comm.broadcast(tensors[comm.rank], root)):
            assert result.tobytes() == tensors[root].tobytes()
        assert [comm.stats.blocks_up for comm in group.comms] == [int(rank == root) for rank in range(3)]


def test_all_gather_stacks() -> None:
    tensors = [np.arange(30, dtype=np.int16).reshape(5, 6) * rank - 7 for rank in range(5)]
    with LocalGroup(5, geometry=SMALL) as group:
        for result in group.run(lambda comm: comm.all_gather(tensors[comm.rank])):
            assert result.dtype == np.int16
            assert (result == np.stack(tensors)).all()


def test_all_gather_of_unequal_bytes() -> None:
    streams = [random.Random(rank).randbytes(size) for rank, size in enumerate([0, 1, 1000, 37])]
    with LocalGroup(4) as group:
        assert group.run(lambda comm: comm.all_gather_bytes(streams[comm.rank])) == [streams] * 4
        assert group.run(lambda comm: comm.all_gather_bytes(b"")) == [[b""] * 4] * 4


@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 3), (2, 0)])
def test_small_and_empty_shapes(shape: tuple[int, ...]) -> None:
    tensor = np.full(shape, 3, np.float32)
    with LocalGroup(2) as group:
        for result in group.run(lambda comm: comm.all_reduce(tensor)):
            assert result.shape == shape
            assert (result == 6).all()
        assert all(r.shape == (2, *shape) for r in group.run(lambda comm: comm.all_gather(tensor)))
        assert all(r.shape == shape for r in group.run(lambda comm: comm.broadcast(tensor)))


def test_windows_adapt_and_are_equal_on_all_ranks() -> None:
    chance, lossy, tensor = random.Random(6), threading.Event(), np.ones(6000, np.int32)

    def step(comm: Communicator) -> int:
        before = list(comm.over_switch.slot_rounds)
        comm.all_reduce(tensor)
        return sum(map(ne, before, comm.over_switch.slot_rounds))

    def lose(rank: int, payload: bytes) -> bool:
        return lossy.is_set() and chance.random() < 0.4

    with LocalGroup(2, geometry=SMALL, slots=64, lose=lose) as group:
        lossy.set()
        found = [group.run(step) for _ in range(3)]
        lossy.clear()
    assert found[0] == [64, 64] and found[2][0] == found[2][1] < 64


def test_a_mismatch_is_raised_on_every_rank_and_by_later_calls() -> None:
    with LocalGroup(3) as group:

        def step(comm: Communicator) -> str:
            with pytest.raises(CollectiveMismatchError) as caught:
                if comm.rank == 1:
                    comm.barrier()
                else:
                    comm.all_reduce(np.ones(70, np.float32))
            with pytest.raises(CollectiveMismatchError) as again:
                comm.barrier()
            assert again.value is caught.value
            return str(caught.value)

        messages = set(group.run(step))
        assert len(messages) == 1
        (message,) = messages
        assert "ranks 0, 2: all_reduce of 70 float32" in message
        assert "rank 1: barrier" in message


def test_stats_count_bytes_on_the_wire() -> None:
    with LocalGroup(2, geometry=SMALL, slots=4, clock=slow_clock) as group:
        group.run(lambda comm: comm.all_reduce(np.ones(SMALL.frame_words, np.int32)))
        stats = group.comms[0].stats
        header, block = SMALL.frame_header_bytes + ENCAP_BYTES, SMALL.block_bytes
        assert (stats.frames_up, stats.frames_down, stats.rounds) == (2, 2, 2)
        assert stats.bytes_up == 2 * header + block + 4 * block  # the call's block, then the tensor's four
        assert stats.bytes_down == 2 * header + block + 4 * block
        assert (stats.blocks_up, stats.blocks_down) == (4, 4)


@pytest.mark.fault("Ctrl-C in a collective: that communicator is closed; the others get an error")
def test_an_interrupted_collective_breaks_the_communicator() -> None:
    with LocalGroup(2) as group:
        comm = group.comms[0]
        group.comms[1].close(wait=False)

        def interrupt(frames: object) -> None:
            raise KeyboardInterrupt

        comm.over_switch.transport.send = interrupt  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            comm.barrier()
        with pytest.raises(CollectiveError, match="interrupted by KeyboardInterrupt"):
            comm.barrier()


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_copies_of_16_bit_floats_keep_every_bit(name: str) -> None:
    dtype, rng = getattr(torch, name), np.random.default_rng(7)
    bits = torch.from_numpy(rng.integers(-(2**15), 2**15, (3, 7, 31), dtype=np.int16))  # NaN with its payload too
    with LocalGroup(3) as group:
        gathered = group.run(lambda comm: comm.all_gather(bits[comm.rank].view(dtype)))
        copies = group.run(lambda comm: comm.broadcast(bits[comm.rank].view(dtype), 1))
    for result in gathered:
        assert result.dtype == dtype and torch.equal(result.view(torch.int16), bits)
    for result in copies:
        assert result.dtype == dtype and torch.equal(result.view(torch.int16), bits[1])


@pytest.mark.parametrize(
    ("out", "says"),
    [
        (np.zeros(9, np.float32), "give one like the tensor, float32[8]"),
        (np.zeros(8, np.int32), "out is int32[8]"),
        ([0.0] * 8, "out is a list; give a numpy array"),
        (np.broadcast_to(np.float32(0), 8), "out is read-only"),
        (np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (8,), (0,)), "elements of out share memory"),
        ("overlap", "out overlaps the tensor"),
        (torch.zeros(8, device="meta"), "out has no plain memory"),
        (torch.zeros(8).to_sparse(), "out has no plain memory"),
        (torch.zeros(1).expand(8), "elements of out share memory"),
    ],
)
def test_an_out_that_cannot_hold_the_sum_is_refused(out: Any, says: str) -> None:
    memory: Any = torch.ones(12) if isinstance(out, torch.Tensor) else np.ones(12, np.float32)
    with pytest.raises(InvalidTensorError, match=re.escape(says)):
        Floats(memory[:8], out=memory[4:] if isinstance(out, str) else out)


def test_a_sum_in_place_increments_autograds_version(comm: Communicator) -> None:
    weight, mine = torch.ones(4, requires_grad=True), torch.full((4,), 2.0)
    loss = (weight * mine).sum()
    comm.all_reduce(mine, out=mine)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_sums_of_tensors_and_arrays_of_other_kinds_are_in_such() -> None:
    conjugated = torch.full((5,), 1 + 2j).conj()
    columns = [torch.full((6, 5), float(rank)).t() for rank in range(2)]  # not contiguous: copied
    matrices: list[Any] = [np.matrix(np.arange(30, dtype=np.float32).reshape(5, 6)) for _ in range(2)]
    masked = [np.ma.masked_array(np.full(24, -0.0, np.float32), mask=[True] * 24, hard_mask=True) for _ in range(2)]
    with LocalGroup(2, geometry=SMALL, slots=4) as group:
        for result in group.run(lambda comm: comm.all_reduce(torch.ones(3, 4, requires_grad=True))):
            assert isinstance(result, torch.Tensor) and result.tolist() == [[2.0] * 4] * 3
        assert conjugated.imag.is_neg()  # and is taken as its numbers
        assert [total.tolist() for total in group.run(lambda comm: comm.all_reduce(conjugated.imag))] == [[-4] * 5] * 2
        assert [copy.tolist() for copy in group.run(lambda comm: comm.broadcast(conjugated))] == [[1 - 2j] * 5] * 2
        for outs, wanted in ((columns, 1), (matrices, 2 * np.arange(30).reshape(5, 6))):
            found = group.run(lambda comm, outs=outs: comm.all_reduce(outs[comm.rank], out=outs[comm.rank]))
            assert all(one is out and (np.asarray(one) == wanted).all() for one, out in zip(found, outs, strict=True))
        group.run(lambda comm: comm.all_reduce(masked[comm.rank], out=masked[comm.rank]))
    assert not any(np.signbit(found.data).any() for found in masked)


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_each_rank_may_give_another_kind_of_out(kind: type) -> None:
    tensors = random_tensors(np.random.default_rng(12), 4, 1001, 0.3, kind, 8)
    wanted = sum_of_float32(tensors, 8) if kind is np.float32 else np.sum(tensors, axis=0, dtype=np.int32)
    own = [tensor.copy() for tensor in tensors]
    strided = np.zeros(2002, kind)
    outs = [None, own[1], strided[::2], np.zeros(1001, kind)]
    with LocalGroup(4, geometry=SMALL, slots=8) as group:
        found = group.run(lambda comm: comm.all_reduce(own[comm.rank], out=outs[comm.rank]))
    for rank in range(4):
        assert found[rank].tobytes() == wanted.tobytes()
        assert rank == 1 or own[rank].tobytes() == tensors[rank].tobytes()
    assert found[2].base is strided

"""wire="auto": float32 or 16 bits by rank 0's measurements, the same on all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from p4reduce.auto_wire import MEASURED_SUMS, AutoWire, Speed
from p4reduce.codecs.wire import float_segment
from p4reduce.communicator import Communicator
from p4reduce.errors import InvalidTensorError, NotFiniteError, PeerRefusedError
from p4reduce.pytorch.backend import sums
from p4reduce.pytorch.ddp import DDPState
from p4reduce.testing.local_group import LocalGroup
from rigs.buckets import Bucket
from rigs.limits import LIMIT_S

RANKS = 3
SLOW, FAST = Speed(round_s=1e-4, frame_s=1e-3), Speed(round_s=1.0, frame_s=1e-9)
SMALL, LARGE = 64, 4096


def measures(comm: Communicator, speed: Speed) -> None:
    """Let a rank measure this speed, whatever its clock says."""
    comm._auto_wire.measured = lambda _round_s: speed  # type: ignore[method-assign]


def formats_of(comm: Communicator, sizes: list[int]) -> list[str]:
    """Return how sums of these sizes were sent."""
    found = []
    for size in sizes:
        total = comm.all_reduce(np.full(size, comm.rank + 1, np.float32), wire="auto")
        assert (total == RANKS * (RANKS + 1) / 2).all()
        found.append(sent_as(comm, size))
    return found


def sent_as(comm: Communicator, size: int = LARGE) -> str:
    """Return the format of the last sum, of `size` numbers that are not zero."""
    assert comm.last is not None
    return {1: "float32", 2: "16"}[size // (comm.last.union_blocks[0] * comm.lease.block_words)]


@pytest.mark.parametrize(
    ("speed", "numbers", "wire"),
    [
        (Speed(1e-3, 1e-5), 256 * 1000, "16"),  # 11 or 6 ms
        (Speed(1e-3, 1e-5), 256 * 66, "float32"),  # 1.66 or 1.33 ms: 19.9 %
        (Speed(1e-3, 1e-5), 256 * 68, "16"),  # 1.68 or 1.34 ms: 20.2 %
        (Speed(1e-3, 0.0), 256 * 1000, "float32"),
        (Speed(0.0, 1e-5), 256, "float32"),  # one frame in either
        (Speed(0.0, 1e-5), 257, "16"),
        (Speed(0.0, 0.0), 256 * 1000, "float32"),
        (Speed(1e-3, 1e-5), 0, "float32"),
    ],
)
def test_sixteen_bits_are_chosen_where_they_save_a_fifth(speed: Speed, numbers: int, wire: str) -> None:
    assert speed.wire_of(numbers, 256) == wire


def test_a_frame_takes_what_it_took_in_the_fastest_of_the_large_collectives() -> None:
    measured = AutoWire()
    assert measured.measured(0.5) == Speed(0.5, 0.0)
    for rounds, seconds in ((1, 0.6), (100, 1.5), (60, 1.1), (120, 1.7), (3, 0.5), (0, 9.0)):
        measured.saw(rounds, seconds, round_s=0.5)
    assert measured.measured(0.5) == pytest.approx(Speed(0.5, 0.01)) or measured.measured(0.5).frame_s == pytest.approx(
        0.01
    )


def test_all_ranks_send_as_rank_0_measured() -> None:
    def ranks(comm: Communicator) -> list[str]:
        measures(comm, SLOW if comm.rank == 0 else FAST)
        return formats_of(comm, [LARGE] * (MEASURED_SUMS + 2) + [SMALL, LARGE])

    with LocalGroup(RANKS) as group:
        found = group.run(ranks)
    assert found == [["float32"] * MEASURED_SUMS + ["16", "16", "float32", "16"]] * RANKS


def test_all_ranks_send_float32_where_rank_0_is_fast() -> None:
    def ranks(comm: Communicator) -> list[str]:
        measures(comm, FAST if comm.rank == 0 else SLOW)
        return formats_of(comm, [LARGE] * (MEASURED_SUMS + 2))

    with LocalGroup(RANKS) as group:
        assert group.run(ranks) == [["float32"] * (MEASURED_SUMS + 2)] * RANKS


def test_all_ranks_agree_by_their_own_clocks() -> None:
    with LocalGroup(RANKS) as group:
        found = group.run(lambda comm: formats_of(comm, [SMALL, LARGE] * MEASURED_SUMS))
    assert found == [found[0]] * RANKS


def test_a_refused_sum_counts_on_all_ranks() -> None:
    def ranks(comm: Communicator) -> list[str]:
        measures(comm, SLOW)
        mine: NDArray[Any] = np.full(LARGE, np.nan if comm.rank == 1 else 1, np.float32)
        for _ in range(2):
            with pytest.raises(NotFiniteError if comm.rank == 1 else PeerRefusedError):
                comm.all_reduce(mine, wire="auto")
        return formats_of(comm, [LARGE] * MEASURED_SUMS)

    with LocalGroup(RANKS) as group:
        assert group.run(ranks) == [["float32"] * (MEASURED_SUMS - 2) + ["16"] * 2] * RANKS


def test_a_refused_bucket_counts_on_all_ranks() -> None:
    def ranks(comm: Communicator) -> list[str]:
        measures(comm, SLOW)
        parameter = torch.nn.Parameter(torch.zeros(LARGE))
        found = []
        with DDPState(comm, wire="auto", on_nonfinite="skip") as state:
            for step in range(MEASURED_SUMS + 2):
                bad = comm.rank == 1 and step in (0, MEASURED_SUMS)
                gradient = torch.full((LARGE,), float("nan") if bad else comm.rank + 1.0)
                mean = state.reduce(Bucket(0, parameter, gradient, last=True)).wait()  # type: ignore[arg-type]
                if mean.isfinite().all():
                    found.append(sent_as(comm))
            assert state.skipped_steps == 2
        return found

    with LocalGroup(RANKS) as group:
        found = group.run(ranks)
    assert found == [["float32"] * (MEASURED_SUMS - 1) + ["16"]] * RANKS


def test_the_backends_sums_of_floats() -> None:
    def ranks(comm: Communicator) -> list[str]:
        measures(comm, SLOW)
        found = []
        for average in (False, True) * (MEASURED_SUMS // 2 + 1):
            for dtype in (torch.float32, torch.int32):
                tensor = torch.full((LARGE,), comm.rank + 1, dtype=dtype)
                sums.all_reduce(comm, [tensor], average=average, timeout_s=LIMIT_S, wire="auto")
                assert (tensor == (2 if average else 6)).all()
                found += [sent_as(comm)] if dtype == torch.float32 else []
        return found

    with LocalGroup(RANKS) as group:
        found = group.run(ranks)
    assert found == [found[0]] * RANKS and found[0][0] == "float32" and found[0][-1] == "16"


def test_what_auto_is_not_for() -> None:
    def ranks(comm: Communicator) -> None:
        halves = torch.ones(40, dtype=torch.bfloat16)
        assert (comm.all_reduce(halves, wire="auto") == RANKS).all()  # its default
        assert comm.last is not None and "lanes of 16" in comm.last.call
        with pytest.raises(InvalidTensorError, match="leaves no residue"):
            comm.all_reduce(np.ones(4, np.float32), wire="auto", residue=np.zeros(4, np.float32))
        with pytest.raises(ValueError, match="feedback is for"):
            DDPState(comm, wire="auto", feedback=True)

    with LocalGroup(RANKS) as group:
        group.run(ranks)
    with pytest.raises(InvalidTensorError, match="choose_wire"):
        float_segment(np.ones(4, np.float32), "auto")

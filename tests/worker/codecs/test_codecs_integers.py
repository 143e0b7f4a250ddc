"""int32 and lanes: exact sums, exact limits. Gathered: every rank's bytes, of any length, among other segments."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from p4reduce.codecs import Floats, Gathered, Segment
from p4reduce.codecs.integers import Int32, Lanes, pack_lanes, unpack_lanes
from p4reduce.codecs.raw import block_count
from p4reduce.communicator import Communicator
from p4reduce.errors import InvalidTensorError, LaneOverflowError
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.state import UNTOUCHED
from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts.wire.geometry import DEFAULT, SMALL, Geometry
from p4reduce_contracts.wire.lanes import WIDTHS, check_lanes, lane_limit, lanes_per_word, narrowest

MOST_RANKS = 32


@pytest.mark.parametrize("bits", WIDTHS)
@settings(max_examples=25)
@given(st.integers(0, 50), st.integers(0, 2**32))
def test_sums_of_words_are_the_packed_sums(bits: int, count: int, seed: int) -> None:
    """All numbers of ranks that the lane holds are tried, with any bound that then fits."""
    rng = np.random.default_rng(seed)
    for world_size in range(1, min(lane_limit(bits), MOST_RANKS) + 1):
        bound = int(rng.integers(1, lane_limit(bits) // world_size, endpoint=True))
        check_lanes(world_size, bound, bits)
        values = rng.integers(-bound, bound, (world_size, count), endpoint=True)
        values = values.astype(np.min_scalar_type(-bound - 1))  # int8, int16 or int32
        words = reduce(np.add, [pack_lanes(row, bits) for row in values])
        assert unpack_lanes(words, bits, count).tolist() == values.sum(axis=0, dtype=np.int64).tolist()


@pytest.mark.fault("sums that overflow a lane: refused at the job's creation, or as LaneOverflowError")
@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("sign", [-1, 1])
def test_every_world_size_at_its_largest_bound(bits: int, sign: int) -> None:
    """All ranks sending the largest |t| that fits are summed exactly; one more is refused."""
    for world_size in range(1, min(lane_limit(bits), MOST_RANKS) + 1):
        bound = lane_limit(bits) // world_size
        tensor = np.array([sign, -sign, 0] * 7) * bound
        words = pack_lanes(tensor, bits) * np.uint32(world_size)
        assert unpack_lanes(words, bits, 21).tolist() == (tensor * world_size).tolist()
        full = np.full(lanes_per_word(bits), sign)  # other ranks may hold larger numbers, but where a bound is stated
        for stated, most in ((bound, world_size * bound), (None, lane_limit(bits))):
            source = Lanes(full * bound, bits, bound=stated).bind(world_size, 8, False)
            largest = pack_lanes(full * most, bits).view(np.int32)
            assert abs(int(largest[0])) == source.parts[0].largest_sum
        with pytest.raises(LaneOverflowError, match=f"holds {lane_limit(bits)}"):
            Lanes(np.array([sign * (bound + 1)]), bits).bind(world_size, 8, False)


@pytest.mark.parametrize("bits", WIDTHS)
def test_many_lanes_are_unpacked_as_a_few_are(bits: int) -> None:
    words = np.random.default_rng(bits).integers(0, 1 << 32, (1 << 16) + 3, dtype=np.uint32)
    found = unpack_lanes(words, bits, len(words) * lanes_per_word(bits))
    parts = [unpack_lanes(part, bits, len(part) * lanes_per_word(bits)) for part in np.array_split(words, 9)]
    assert np.array_equal(found, np.concatenate(parts))


@pytest.mark.parametrize(
    ("world_size", "bound", "bits", "advice"),
    [
        (8, 1, 4, "8 ranks x |t| <= 1 can reach 8, and a lane of 4 bits holds 7; use lanes of at least 5 bits"),
        (4, 2, 4, "use lanes of at least 5 bits or |t| <= 1"),
        (3, 2**31 - 1, 16, "use |t| <= 10922"),
        (4, 2**29, 32, "and a lane of 32 bits holds 2147483647; use |t| <= 536870911"),
        (32, 2**31 - 1, 4, "use lanes of 32 bits and |t| <= 67108863"),
    ],
)
def test_the_error_says_what_fits(world_size: int, bound: int, bits: int, advice: str) -> None:
    with pytest.raises(LaneOverflowError) as error:
        check_lanes(world_size, bound, bits)
    assert str(error.value).startswith("the tensor: ")
    assert str(error.value).endswith(advice)


def test_127_ranks_fit_eight_bits_and_128_do_not() -> None:
    assert narrowest(127) == 8
    assert narrowest(128) == 10
    assert [narrowest(n) for n in (1, 7, 8, 15, 16, 31, 32, 511, 512)] == [4, 4, 5, 5, 6, 6, 8, 10, 16]
    assert [narrowest(n) for n in (32767, 32768, 2**31 - 1)] == [16, 32, 32]
    with pytest.raises(LaneOverflowError, match=r"4 ranks x .* can reach 2147483648, .*; use \|t\| <= 536870911"):
        narrowest(4, 2**29)


def test_zero_blocks_stay_zero() -> None:
    values = np.zeros(4 * 8 * 3, np.int8)
    values[40] = -1
    source = Lanes(values, 8).bind(4, 8, False)
    assert source.nonzero.tolist() == [False, True, False]


def test_int32_wraps_like_numpy() -> None:
    tensor = np.array([2**31 - 1, -(2**31), 5], np.int32)
    source = Int32(tensor).bind(2, 8, False)
    words = source.encode(np.array([0]), np.zeros(1, np.uint8)).astype(np.uint32)
    (got,) = source.decode((words + words).astype(">u4"), np.zeros(1, np.uint8))
    with np.errstate(over="ignore"):
        assert got.tolist() == (tensor + tensor).tolist()


def ones(dtype: Any, *numbers: int) -> np.ndarray:
    return np.array(numbers or [1], dtype)


WIDE = "lanes are 4, 5, 6, 8, 10, 16 or 32 bits wide, not"


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (lambda: Lanes(ones(np.int8), 8, bound=40), LaneOverflowError, r"4 ranks x \|t\| <= 40"),
        (lambda: Lanes(ones(np.int8, 1, -2), 8, bound=1, name="c"), LaneOverflowError, r"\[1\] of c is -2, beyond the"),
        (lambda: Lanes(ones(np.int8, -128), 8), LaneOverflowError, "holds 127"),
        (lambda: Lanes(ones(np.int32, -(2**31)), 32), LaneOverflowError, "holds 2147483647"),
        (lambda: Lanes(ones(np.int8), 3), InvalidTensorError, f"{WIDE} 3$"),
        (lambda: Lanes(ones(np.int8), 64), InvalidTensorError, f"{WIDE} 64$"),
        (lambda: Lanes(ones(np.uint8), 8, name="x"), InvalidTensorError, "x is uint8"),
        (lambda: Lanes(ones(np.float32), 8, name="x"), InvalidTensorError, "x is float32"),
        (lambda: Int32(ones(np.int64)), InvalidTensorError, "int64; convert"),
        (lambda: Floats(ones(np.float32), 4), InvalidTensorError, "bits is 4; give 32, 16 or 8"),
        (lambda: Floats(ones(np.int64), name="x"), InvalidTensorError, "x is int64; convert it to float32"),
        (lambda: Floats([1.0]), InvalidTensorError, "give a numpy array or a torch tensor"),
    ],
)
def test_what_a_format_does_not_hold_is_refused(make: Callable[[], Any], error: type[Exception], told: str) -> None:
    """Tensors of one of 4 ranks; a stated bound holds for a rank with smaller numbers too."""
    with pytest.raises(error, match=told):
        make().bind(4, 8, False)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Lanes(ones(np.int8), 8, bound=1), Lanes(ones(np.int8), 8, bound=2)),
        (Lanes(ones(np.int8), 8), Lanes(ones(np.int8), 10)),
        (Floats(ones(np.float32), 16), Floats(ones(np.float32), 32)),
        (Gathered(ones(np.uint8), 100, 0), Gathered(ones(np.uint8), 101, 0)),
    ],
)
def test_segments_of_different_formats_have_different_layouts(one: Segment, other: Segment) -> None:
    """The text by which ranks that call differently get an error."""
    assert one.layout != other.layout


CAPACITY = 3000


def bytes_of_rank(rank: int, length: int) -> np.ndarray:
    return np.random.default_rng(rank).integers(1, 256, length, dtype=np.uint8)


def gather(
    given: list[np.ndarray], geometry: Geometry = DEFAULT, capacity: int = CAPACITY
) -> list[tuple[np.ndarray, int]]:
    """Return what each rank gets of one collective with sums before and after, and the bytes down."""
    ranks = len(given)

    def rank_main(comm: Communicator) -> tuple[np.ndarray, int]:
        before = Floats(torch.full((70,), 1.0 + comm.rank))
        after = Lanes(np.arange(-3, 4, dtype=np.int8), 16)
        middle = Gathered(given[comm.rank], capacity, comm.rank)
        dense, rows, lanes = comm.all_reduce_segments([before, middle, after])
        assert torch.equal(dense, torch.full((70,), ranks * (ranks + 1) / 2))
        assert lanes.tolist() == [ranks * value for value in range(-3, 4)]
        return rows, comm.stats.bytes_down

    with LocalGroup(ranks, geometry=geometry) as group:
        return group.run(rank_main)


def spans_of_zeros(geometry: Geometry) -> list[np.ndarray]:
    """Return the bytes of three ranks, with whole blocks of zeros within and at the end."""
    given, block = [bytes_of_rank(rank, 5 * geometry.block_bytes) for rank in range(3)], geometry.block_bytes
    for rank, begin, end in ((0, 1, 4), (1, 0, 2), (1, 4, 5), (2, 3, 5)):
        given[rank][begin * block : end * block] = 0
    return given


def test_sums_that_no_rank_held_are_zeros_whatever_their_memory_held(monkeypatch: pytest.MonkeyPatch) -> None:
    given, words = np.zeros(5 * 128, np.uint8), DEFAULT.block_words
    given[2 * 128 : 3 * 128] = 1
    segments = (Floats(np.zeros(70, np.float32)), Gathered(given, CAPACITY, 1), Lanes(np.zeros(7, np.int8), 16))
    layout = Blocks([part for own in segments for part in own.bind(2, words, False).parts]).layout()
    agreed = np.full(sum(len(part.nonzero) for part in layout.parts), UNTOUCHED, np.uint8)
    first, held = len(layout.parts[0].nonzero), np.flatnonzero(layout.parts[1].nonzero)
    agreed[first + held] = 0
    monkeypatch.setattr(np, "empty", np.ones)
    room = layout.make_room(dense=False)
    monkeypatch.undo()
    dense, rows, lanes = layout.finish(room, agreed)
    assert not dense.any() and not lanes.any() and not rows[0].any()
    assert np.flatnonzero(rows[1].view(np.uint32)).tolist() == [*range(2 * words, 3 * words)]


@pytest.mark.parametrize("geometry", [DEFAULT, SMALL], ids=["default", "small"])
def test_every_rank_gets_the_bytes_of_each(geometry: Geometry) -> None:
    """Zeros do not travel: neither those between other bytes nor those that end the data."""
    of_rank = [bytes_of_rank(rank, 0 if rank == 1 else 1 + 397 * rank) for rank in range(8)]
    none = [np.zeros(length, np.uint8) for length in (0, 0, 5 * geometry.block_bytes)]
    for ranks in (of_rank[:1], of_rank[:2], of_rank, spans_of_zeros(geometry), none):
        longest = max(block_count(len(np.trim_zeros(mine, "b")), geometry.block_words) for mine in ranks)
        for rows, _ in gather(ranks, geometry):
            assert rows.shape == (len(ranks), longest * geometry.block_bytes) and rows.dtype == np.uint8
            for row, mine in zip(rows, ranks, strict=True):
                shown = mine[: len(row)]
                assert row[: len(shown)].tolist() == shown.tolist() and not mine[len(row) :].any()
                assert not row[len(mine) :].any()
    assert [rows.shape for rows, _ in gather([np.zeros(0, np.uint8)] * 2, capacity=0)] == [(2, 0)] * 2


def test_the_bytes_down_are_those_given_and_not_the_capacity() -> None:
    """The second call alike is measured: the first opens the whole window."""
    given = [bytes_of_rank(rank, 1000 * (rank % 2)) for rank in range(4)]

    def rank_main(comm: Communicator) -> int:
        for _ in range(2):
            before = comm.stats.bytes_down
            comm.all_reduce_segments([Gathered(given[comm.rank], 10_000_000, comm.rank)])
        return comm.stats.bytes_down - before

    with LocalGroup(4) as group:
        spent = max(group.run(rank_main))
    assert 2000 < spent < 2 * 2000 + 1500  # eight blocks each, and headers


def test_full_to_capacity_and_beyond() -> None:
    full = bytes_of_rank(3, 700)
    for rows, _ in gather([full, full[:-1]], capacity=700):
        assert rows[0, :700].tolist() == full.tolist()
    with pytest.raises(InvalidTensorError, match="coordinates: 700 B, more than the 699 B all ranks agreed on"):
        Gathered(full, 699, 0, name="coordinates")

"""Coordinates by hand: gaps, how many bytes, and other bytes are refused (test_codecs_coordinates_kernels.py)."""

from __future__ import annotations

import numpy as np
import pytest

from p4reduce.codecs import coordinates
from p4reduce.codecs.coordinates import STREAM_HEADER_BYTES, Coordinates, decode, encode, entry_bytes, most_bytes
from p4reduce.errors import InvalidTensorError

LENGTHS = (1, 2, 50, 63, 64, 500, 16384)


def chosen(indices: list[int] | np.ndarray, signs: list[int] | np.ndarray, scale: float = 0.5) -> Coordinates:
    return Coordinates(scale, np.asarray(indices, np.int64), np.asarray(signs, np.int8))


def round_trip(given: Coordinates, length: int, elements: int, behind: int = 3) -> int:
    """The bytes it took, after reading it back from a longer array."""
    data = encode(given, length)
    assert len(data) <= most_bytes(elements, length)
    found, used = decode(np.concatenate([data, np.full(behind, 0xAB, np.uint8)]), length, elements)
    assert used == len(data)
    assert found.scale == given.scale
    assert found.indices.tolist() == given.indices.tolist()
    assert found.signs.tolist() == given.signs.tolist()
    return used


@pytest.mark.parametrize("gap", [1, 2, 63, 64, 65, 127, 128, 129, 1000])
def test_one_entry_passes_64_bins_in_the_short_code(gap: int) -> None:
    assert round_trip(chosen([7, gap * 50 + 20], [1, -1]), 50, 60_000) == STREAM_HEADER_BYTES + 2 + -(-gap // 64)
    assert round_trip(chosen([gap * 50 + 20], [-1]), 50, 60_000) == STREAM_HEADER_BYTES + 1 + -(-gap // 64)
    assert round_trip(chosen([7, gap * 64 + 20], [1, -1]), 64, 70_000) == STREAM_HEADER_BYTES + 2 * 3


def test_the_bytes_by_hand() -> None:
    """Bins of 10, elements 2 and 7 of bin 0, 7 and 9 of bin 1, 0 of bin 5."""
    header = np.array([1.5], "<f4").tobytes() + (6).to_bytes(4, "little")
    entries = [2 << 2, 7 << 2 | 1, 7 << 2, 9 << 2 | 1, 3 << 2 | 3, 0]  # bin 1 needs no end: 7 is not above 7
    given = chosen([2, 7, 17, 19, 50], [1, -1, 1, -1, 1], 1.5)
    assert encode(given, 10).tobytes() == header + bytes(entries)
    long = encode(chosen([600, 700, 1400], [1, -1, 1], 1.5), 500)  # offsets 100, 200 of bin 1, 400 of bin 2
    numbers = [0 << 2 | 3, 100 << 2, 200 << 2 | 1, 0 << 2 | 3, 400 << 2]
    assert long[:8].tobytes() == header[:4] + (5).to_bytes(4, "little")
    assert long[8:].view("<u2").tolist() == numbers


@pytest.mark.parametrize(("length", "a_bin", "size"), [(50, 5, 1), (63, 5, 1), (64, 6, 2), (500, 6, 2)])
def test_an_element_takes_one_or_two_bytes(length: int, a_bin: int, size: int) -> None:
    """Ends are rare where bins hold several elements each."""
    assert entry_bytes(length) == size
    rng = np.random.default_rng(length)
    bins = 2000
    indices = np.flatnonzero(rng.random(bins * length) < a_bin / length)
    used = round_trip(chosen(indices, rng.choice([-1, 1], len(indices))), length, bins * length)
    ends = (used - STREAM_HEADER_BYTES) / size - len(indices)
    assert 0 < ends < 0.06 * bins


@pytest.mark.parametrize("length", [50, 500])
def test_bytes_of_another_tensor_are_refused(length: int) -> None:
    data = encode(chosen([5, 3 * length + 7], [1, -1]), length)
    with pytest.raises(InvalidTensorError, match=f"element {3 * length + 7} of {3 * length + 7}: the ranks encode"):
        decode(data, length, 3 * length + 7)
    many = data.copy()
    many[4:8] = 255
    with pytest.raises(InvalidTensorError, match="4294967295 entries for a tensor of 1000 elements"):
        decode(many, length, 1000)
    for scale in (np.nan, np.inf):
        for indices in ([5], []):
            bad = encode(chosen(indices, [1] * len(indices), scale), length)
            with pytest.raises(InvalidTensorError, match="the ranks encode differently"):
                decode(bad, length, 1000)


@pytest.mark.parametrize(("entry", "length"), [(5 << 2 | 2, 50), (50 << 2, 50), (63 << 2 | 1, 50), (500 << 2, 500)])
def test_invalid_entries_are_refused(entry: int, length: int) -> None:
    """Code 2, and offsets beyond the bin: read on, they could name one element twice."""
    data = encode(chosen([1], [1]), length)
    data = np.concatenate([data[:STREAM_HEADER_BYTES], np.array([entry], f"<u{entry_bytes(length)}").view(np.uint8)])
    with pytest.raises(InvalidTensorError, match="the ranks encode differently"):
        decode(data, length, 10_000)


def test_the_longest_bin_fits_its_entries() -> None:
    assert coordinates.LONGEST_BIN == 1 << 14
    used = round_trip(chosen([16383, 16384, 32767], [1, -1, 1]), 16384, 32768)
    assert used == STREAM_HEADER_BYTES + 2 * 3

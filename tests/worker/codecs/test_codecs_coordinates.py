"""Coordinates by hand: gaps, how many bytes, and other bytes are refused (test_codecs_coordinates_kernels.py)."""

from __future__ import annotations

import numpy as np
import pytest

from p4reduce.codecs.coordinates import STREAM_HEADER_BYTES, Coordinates, decode, encode


def chosen(indices: list[int] | np.ndarray, signs: list[int] | np.ndarray, scale: float = 0.5) -> Coordinates:
    return Coordinates(scale, np.asarray(indices, np.int64), np.asarray(signs, np.int8))


@pytest.mark.parametrize(
    ("gap", "entry"),
    [
        (0, [0]),
        (119, [238]),
        (120, [240, 0]),
        (375, [240, 255]),
        (376, [242, 0]),
        (1911, [252, 255]),
        (1912, [254, 0]),
        (3944, [254, 254, 240, 0]),
    ],
)
def test_the_bytes_by_hand(gap: int, entry: list[int]) -> None:
    """Two elements, the second after a gap; it is negative, which sets the lowest bit of its first byte."""
    given = chosen([5, 6 + gap], [1, -1], 1.5)
    second = [byte for byte in entry if byte == 254]
    second += [entry[len(second)] | 1, *entry[len(second) + 1 :]]
    header = np.array([1.5], "<f4").tobytes() + (1 + len(second)).to_bytes(4, "little")
    data = encode(given)
    assert data.tobytes() == header + bytes([10, *second])
    found, used = decode(np.concatenate([data, np.full(3, 0xAB, np.uint8)]), 7 + gap)
    assert used == len(data) and found.scale == 1.5
    assert found.indices.tolist() == [5, 6 + gap] and found.signs.tolist() == [1, -1]


@pytest.mark.parametrize(("one_in", "most"), [(12, 1.01), (30, 1.03), (70, 1.19), (500, 1.84)])
def test_what_an_element_takes(one_in: int, most: float) -> None:
    rng = np.random.default_rng(one_in)
    indices = np.flatnonzero(rng.random(400_000) < 1 / one_in)
    data = encode(chosen(indices, rng.choice([-1, 1], len(indices))))
    assert 1 <= (len(data) - STREAM_HEADER_BYTES) / len(indices) < most

"""Coordinates by hand, and their kernels against a definition in Python, bit for bit: bytes, what any bytes decode to,
the mean."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from p4reduce.codecs.coordinates import STREAM_HEADER_BYTES, Coordinates, GatheredCoordinates, Part, encode, most_bytes
from p4reduce.errors import InvalidTensorError
from rigs.bits import bits

SCALES = (0.0, -0.0, 1.0, -0.75, 1e-45, 1e-38, 3.4028234663852886e38, -3.4028234663852886e38, 0.1)


class Sent(NamedTuple):
    """The elements that a rank sends of one tensor."""

    scale: float
    indices: NDArray[np.int64]
    signs: NDArray[np.int8]


def encoded(sent: Sent) -> NDArray[np.uint8]:
    ends, scales = np.array([len(sent.indices)]), np.array([sent.scale], np.float32)
    (data,) = encode(Coordinates(sent.indices, sent.signs, ends, scales))
    return data


def encode_by_definition(sent: Sent) -> NDArray[np.uint8]:
    entries = bytearray()
    for gap, minus in zip((np.diff(sent.indices, prepend=-1) - 1).tolist(), (sent.signs < 0).tolist(), strict=True):
        passed, left = divmod(gap, 1912)
        high, low = divmod(left - 120, 256)
        entries += passed * b"\xfe" + bytes([2 * left + minus] if left < 120 else [2 * (120 + high) + minus, low])
    header = np.array([sent.scale], "<f4").tobytes() + len(entries).to_bytes(4, "little")
    return np.frombuffer(header + bytes(entries), np.uint8)


def decode_by_definition(data: NDArray[np.uint8], elements: int) -> tuple[Sent, int] | None:
    """Return the decoded elements; None: the bytes are no encoding."""
    head = padded(data, STREAM_HEADER_BYTES)
    scale, count = float(head[:4].view("<f4")[0]), int(head[4:].view("<u4")[0])
    if count > elements or not np.isfinite(scale):
        return None
    used = STREAM_HEADER_BYTES + count
    entries = iter(padded(data, used)[STREAM_HEADER_BYTES:].tolist())
    indices, signs, following = [], [], 0
    for first in entries:
        if first >= 254:
            following += 1912
            if first == 255:
                return None
            continue
        gap = first // 2
        if gap >= 120:
            second = next(entries, None)
            if second is None:
                return None
            gap = 120 + 256 * (gap - 120) + second
        following += gap + 1
        if following > elements:
            return None
        indices.append(following - 1)
        signs.append(-1 if first % 2 else 1)
    return Sent(scale, np.array(indices, np.int64), np.array(signs, np.int8)), used


def padded(data: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """The first `size` bytes; those that are not there are 0."""
    return np.concatenate([data[:size], np.zeros(max(0, size - len(data)), np.uint8)])


def received_by_definition(data: NDArray[np.uint8], parts: list[Part]) -> list[list[Sent]] | None:
    at, found = [0] * len(data), []
    for elements, sender in parts:
        own = []
        for rank in range(len(data)) if sender is None else (sender,):
            decoded = decode_by_definition(data[rank][at[rank] :], elements)
            if decoded is None:
                return None
            own.append(decoded[0])
            at[rank] += decoded[1]
        found.append(own)
    return found


def draw(elements: int, density: float, seed: int, scale: float) -> Sent:
    rng = np.random.default_rng(seed)
    indices = np.flatnonzero(rng.random(elements) < density)
    return Sent(scale, indices, rng.choice(np.array([-1, 1], np.int8), len(indices)))


@pytest.mark.parametrize(
    ("gap", "entry"),
    [(0, [0]), (119, [238]), (120, [240, 0]), (375, [240, 255]), (376, [242, 0])]
    + [(1911, [252, 255]), (1912, [254, 0]), (3944, [254, 254, 240, 0])],
)
def test_the_bytes_by_hand(gap: int, entry: list[int]) -> None:
    """Two elements, the second after a gap; it is negative, which sets the lowest bit of its first byte."""
    given = Sent(1.5, np.array([5, 6 + gap]), np.array([1, -1], np.int8))
    second = [byte for byte in entry if byte == 254]
    second += [entry[len(second)] | 1, *entry[len(second) + 1 :]]
    header = np.array([1.5], "<f4").tobytes() + (1 + len(second)).to_bytes(4, "little")
    data = encoded(given)
    assert data.tobytes() == header + bytes([10, *second])
    behind = np.concatenate([data, np.full(3, 0xAB, np.uint8)])
    assert bits(received(behind[None], [Part(7 + gap, None)])) == bits([[given]])


@pytest.mark.parametrize(("one_in", "most"), [(12, 1.01), (30, 1.03), (70, 1.19), (500, 1.84)])
def test_what_an_element_takes(one_in: int, most: float) -> None:
    sent = draw(400_000, 1 / one_in, one_in, 0.5)
    assert 1 <= (len(encoded(sent)) - STREAM_HEADER_BYTES) / len(sent.indices) < most


@settings(max_examples=300)
@given(st.integers(0, 40_000), st.sampled_from([0.0, 1e-4, 1e-3, 0.01, 0.1, 0.9, 1.0]), st.integers(0, 2**32))
@example(40_000, 1e-4, 3)
def test_encoding_and_decoding_equal_the_definition(elements: int, density: float, seed: int) -> None:
    sent = draw(elements, density, seed, 0.5)
    data = encoded(sent)
    assert bits(data) == bits(encode_by_definition(sent)) and len(data) <= most_bytes(elements)
    rows = np.zeros((2, len(data) + 5), np.uint8)  # as blocks end: with zeros
    rows[0, : len(data)] = rows[1, : len(data)] = data
    assert bits(received(rows, [Part(elements, None)])) == bits([[sent, sent]])


@settings(max_examples=100)
@given(st.one_of(st.integers(0, 300), st.just(5000)), st.binary(max_size=120), st.integers(0, 60))
@example(0, b"", 0)
@example(10, bytes([20]), 1)  # element 10 of 10
@example(5000, bytes([255]), 1)  # the entry that is not in use
@example(5000, bytes([240, 0]), 1)  # the second byte is not the tensor's
@example(5000, bytes([254, 253, 255, 254]), 4)
@pytest.mark.slow
def test_any_bytes_are_decoded_or_refused_as_defined(elements: int, tail: bytes, count: int) -> None:
    good = encoded(draw(elements, 0.1, 1, 0.5)).tobytes()
    for scale in (1.0, float("nan"), float("inf")):
        header = np.array([scale], "<f4").tobytes() + count.to_bytes(4, "little")
        rows = [header + tail, good, header + good[8:] + tail, tail[:7]]
        longest = max(map(len, rows))
        data = np.array([list(row.ljust(longest, b"\0")) for row in rows], np.uint8)
        for senders in product((None, 0, 1, 2, 3), repeat=2):
            parts = [Part(elements, sender) for sender in (*senders, 1)]  # one behind the other
            assert bits(received(data, parts)) == bits(received_by_definition(data, parts))


def received(data: NDArray[np.uint8], parts: list[Part]) -> list[list[Sent]] | None:
    """Return what each rank sent of each part; None: the bytes are refused."""
    try:
        found = GatheredCoordinates(parts, [np.zeros(0, np.uint8)], 0).finish(data)
    except InvalidTensorError as error:
        assert "the ranks encode differently" in str(error)
        return None
    return [
        [
            Sent(float(scale), part.indices[end - many : end], part.signs[end - many : end])
            for scale, end, many in zip(part.scales, part.ends, np.diff(part.ends, prepend=0), strict=True)
        ]
        for part in found
    ]


@settings(max_examples=300)
@given(
    st.one_of(st.integers(0, 50), st.sampled_from([4095, 4096, 4097, 8192, 13_000])),
    st.lists(
        st.tuples(st.sampled_from([0.0, 1e-3, 0.1, 1.0]), st.integers(0, 99), st.sampled_from(SCALES)),
        min_size=1,
        max_size=5,
    ),
)
def test_means_equal_the_definition(elements: int, ranks: list[tuple[float, int, float]]) -> None:
    """Two tensors are of all ranks, and one between them is of the last rank alone."""
    sent = [draw(elements, density, seed, float(np.float32(scale))) for density, seed, scale in ranks]
    total = np.zeros(elements)
    for rank in sent:
        total[rank.indices] += rank.scale * rank.signs
    alone = np.zeros(elements)
    alone[sent[-1].indices] += sent[-1].scale * sent[-1].signs
    rows = [2 * encoded(rank).tobytes() for rank in sent]
    rows[-1] += encoded(sent[-1]).tobytes()
    longest = max(map(len, rows))
    data = np.frombuffer(b"".join(row.ljust(longest, b"\0") for row in rows), np.uint8).reshape(len(rows), -1)
    parts = [Part(elements, None), Part(elements, len(ranks) - 1), Part(elements, None)]
    found = GatheredCoordinates(parts, [np.zeros(0, np.uint8)], 0).finish(data)
    wanted = [total / len(sent), alone, total / len(sent)]
    assert bits([part.mean for part in found]) == bits([mean.astype(np.float32) for mean in wanted])

"""The compiled coordinates against those in Python, bit for bit: bytes, what is read from any bytes, and the mean."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from p4reduce.codecs import coordinates
from p4reduce.codecs.coordinates import Coordinates, GatheredCoordinates, Part, RanksCoordinates, decode, encode
from rigs.kernels import bits, both, needs_kernels

LENGTHS = (1, 2, 50, 63, 64, 500, 16384)
SCALES = (0.0, -0.0, 1.0, -0.75, 1e-45, 1e-38, 3.4028234663852886e38, -3.4028234663852886e38, 0.1)


@pytest.fixture(autouse=True)
def _kernels() -> None:
    needs_kernels()


def draw(elements: int, density: float, seed: int, scale: float) -> Coordinates:
    rng = np.random.default_rng(seed)
    indices = np.flatnonzero(rng.random(elements) < density)
    return Coordinates(scale, indices, rng.choice(np.array([-1, 1], np.int8), len(indices)))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.sampled_from(LENGTHS),
    st.integers(0, 40_000),
    st.sampled_from([0.0, 1e-4, 1e-3, 0.01, 0.1, 0.9, 1.0]),
    st.integers(0, 2**32),
)
@example(1, 40_000, 1e-4, 3)
def test_the_same_bytes_and_the_same_back(length: int, elements: int, density: float, seed: int) -> None:
    sent = draw(elements, density, seed, 0.5)
    data, oracle = both(lambda: encode(sent, length))
    assert bits(data) == bits(oracle)
    assert isinstance(data, np.ndarray)
    rows = np.zeros((2, len(data) + 5), np.uint8)  # as blocks end: with zeros
    rows[0, : len(data)] = rows[1, : len(data)] = data
    found, oracle_found = both(lambda: received(rows, [Part(elements, length, None)]))
    assert bits(found) == bits(oracle_found) == bits([[sent, sent]])
    assert bits(decode(data, length, elements)) == bits((sent, len(data)))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(LENGTHS), st.integers(0, 300), st.binary(max_size=120), st.integers(0, 60))
@example(500, 0, b"", 0)
@example(500, 10, bytes([40, 0]), 1)  # element 10 of 10
@example(50, 100, bytes([2]), 1)  # the code that is not used
@example(2, 100, bytes([8]), 1)  # an offset beyond its bin
def test_any_bytes_are_read_or_refused_alike(length: int, elements: int, tail: bytes, count: int) -> None:
    good = encode(draw(elements, 0.1, 1, 0.5), length).tobytes()
    for scale in (1.0, float("nan"), float("inf")):
        header = np.array([scale], "<f4").tobytes() + count.to_bytes(4, "little")
        rows = [header + tail, good, header + good[8:] + tail, tail[:7]]
        longest = max(map(len, rows))
        data = np.array([list(row.ljust(longest, b"\0")) for row in rows], np.uint8)
        for senders in product((None, 0, 1, 2, 3), repeat=2):
            parts = [Part(elements, length, sender) for sender in (*senders, 1)]  # one behind the other
            found, oracle = both(lambda data=data, parts=parts: received(data, parts))
            assert bits(found) == bits(oracle)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from((1, 50, 64)), st.integers(0, 3000), st.sampled_from((None, 0, 1))), max_size=4),
    st.integers(0, 2**32),
    st.booleans(),
)
@example([(50, 12_500, 0), (50, 12_500, 1)], 0, True)
def test_blocks_of_zeros_that_did_not_travel(parts: list[tuple[int, int, int | None]], seed: int, plus: bool) -> None:
    """As they arrive: an entry of +scale at a bin's first element is a zero byte, and rows end with the last block that
    travelled. What Python reads beyond a row has no place in the memory that the kernel writes to."""
    told = [Part(elements, length, sender) for length, elements, sender in parts]
    sent: list[list[Coordinates]] = []
    rows = [b"", b""]
    for number, part in enumerate(told):
        own = []
        for rank in (0, 1) if part.sender is None else (part.sender,):
            if (number + rank) % 2 == 0 and plus:
                indices = np.arange(0, part.elements, part.bin_length)
                own.append(Coordinates(0.5, indices, np.ones(len(indices), np.int8)))
            else:
                own.append(draw(part.elements, 0.05, seed + rank, 0.25))
            rows[rank] += encode(own[-1], part.bin_length).tobytes()
        sent.append(own)
    blocks = max([len(row.rstrip(b"\0")) for row in rows])  # whole blocks of 128 bytes
    data = np.zeros((2, -(-blocks // 128) * 128), np.uint8)
    for rank, row in enumerate(rows):
        there = row.ljust(data.shape[1], b"\0")[: data.shape[1]]
        data[rank] = np.frombuffer(there, np.uint8)
    found, oracle = both(lambda: received(data, told))
    assert bits(found) == bits(oracle) == bits(sent)


def test_the_kernel_writes_to_no_more_than_its_memory() -> None:
    module = coordinates.compiled()
    assert module is not None
    data = encode(Coordinates(0.5, np.arange(100), -np.ones(100, np.int8)), 50)[None]
    for decode_ranks in (module.decode, module.decode.py_func):
        for room in ((99, 100), (100, 99), (0, 0), (100, 100)):
            indices, signs = np.full(200, -7), np.full(200, -7, np.int8)
            at, end, ends, scales = np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1)
            own = indices[: room[0]], signs[: room[1]]
            count = decode_ranks(data, at, end, 1, data.size, 50, 100, *own, ends, scales)
            assert count == (100 if room == (100, 100) else -1)
            assert (indices[room[0] :] == -7).all()
            assert (signs[room[1] :] == -7).all()


def received(data: NDArray[np.uint8], parts: list[Part]) -> list[list[Coordinates]]:
    """What each rank sent of each part."""
    found = GatheredCoordinates(parts, [np.zeros(0, np.uint8)], 0).wrap(data)
    return [
        [
            Coordinates(float(scale), part.indices[end - many : end], part.signs[end - many : end])
            for scale, end, many in zip(part.scales, part.ends, np.diff(part.ends, prepend=0), strict=True)
        ]
        for part in found
    ]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.one_of(st.integers(0, 50), st.sampled_from([4095, 4096, 4097, 8192, 13_000])),
    st.lists(
        st.tuples(st.sampled_from([0.0, 1e-3, 0.1, 1.0]), st.integers(0, 99), st.sampled_from(SCALES)),
        min_size=1,
        max_size=5,
    ),
)
def test_the_same_mean(elements: int, ranks: list[tuple[float, int, float]]) -> None:
    sent = [draw(elements, *rank) for rank in ranks]
    found, oracle = both(lambda: RanksCoordinates.of(elements, sent).mean)
    assert bits(found) == bits(oracle)


def test_the_mean_of_indices_that_are_no_encoding() -> None:
    """Out of order, twice, negative, or beyond the tensor: as Python has it, and no memory is written to beside it."""
    signs = np.ones(2, np.int8)
    for indices in ([7, 3], [3, 3], [-1, 4], [5000, 4999], [5, 9_000], [9_000, 9_001]):
        sent = [Coordinates(0.5, np.array(found), signs) for found in ([0, 8_999], indices)]
        found, oracle = both(lambda sent=sent: RanksCoordinates.of(9_000, sent).mean)
        assert bits(found) == bits(oracle)


def test_the_compiled_kernels_run_in_these_tests() -> None:
    """What is compared with Python is compiled: an encoding goes through the kernel, and not around it."""
    module = coordinates.compiled()
    assert module is not None
    entries = np.zeros(4, np.uint16)
    for encoded in (module.encode, module.encode.py_func):
        assert encoded(np.array([3, 700]), np.array([1, -1], np.int8), 500, 1 << 14, entries) == 3
        assert entries.tolist() == [3 << 2, 0 << 2 | 3, 200 << 2 | 1, 0]

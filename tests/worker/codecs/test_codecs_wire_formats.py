"""Sums of float32, float16 and bfloat16 in 32, 16 and 8 bits: their bits by numpy, errors, layout, refusals."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from p4reduce.codecs import Floats
from p4reduce.codecs.arrays import to_numpy
from p4reduce.communicator import Communicator
from p4reduce.errors import InvalidTensorError, NotFiniteError, PeerRefusedError
from p4reduce.protocol import floats
from p4reduce.protocol.blocks import Layout
from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts.wire.geometry import DEFAULT
from rigs.float_sums import by_numpy, rounded_once, summed_words

WORDS = 8
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
BITS = (32, 16, 8)
LENGTHS = (4, 8, 32, 36, 100)
"""Words of blocks: the kernels have one loop for the first 32 and one for what is beyond."""


def summed(
    tensors: list[Any], bits: int, *, mean: bool = False, words: int = WORDS, part: tuple[int, int] | None = None
) -> torch.Tensor:
    """Return what every rank gets, with the switch's part done by numpy."""
    segments = [Floats(tensor, bits, mean=mean, part=part) for tensor in tensors]
    sources = [segment.bind(len(tensors), words, False) for segment in segments]
    result: torch.Tensor = sources[0].decode(*summed_words(sources, words))[0]
    return result


def random_tensors(rng: np.random.Generator, ranks: int, size: int, dtype: torch.dtype, spread: int) -> list[Any]:
    exponent = 0 if dtype == torch.float16 else int(rng.integers(-100, 100))
    powers = 2.0 ** (exponent + rng.integers(-spread, 1, size))
    tensors = rng.standard_normal((ranks, size)) * powers * (rng.random(size) < 0.9)
    return [torch.from_numpy(tensor).to(dtype) for tensor in tensors]


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=60)
@given(
    st.integers(1, 32), st.integers(0, 2**32), st.integers(0, 20), st.booleans(), st.sampled_from(LENGTHS), st.data()
)
def test_sums_and_their_parts_have_the_bits_of_the_definition(
    dtype: torch.dtype, bits: int, ranks: int, seed: int, spread: int, mean: bool, words: int, data: st.DataObject
) -> None:
    """Parts are decoded of words, as after a reset of the job."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 25 * words))
    tensors = random_tensors(rng, ranks, size, dtype, spread)
    wanted = by_numpy(tensors, bits, words, mean=mean)
    begin = data.draw(st.integers(0, size))
    end = data.draw(st.integers(begin, size))
    for part, expected in ((None, wanted), ((begin, end), wanted[begin:end])):
        found = summed(tensors, bits, mean=mean, words=words, part=part)
        assert found.dtype == dtype
        assert torch.equal(found + 0.0, expected + 0.0)  # a sum of zero has no sign


@pytest.mark.parametrize(("bits", "ranks"), [(32, 33), (32, 1024), (16, 1000), (8, 64)])
def test_sums_of_many_ranks_have_the_bits_of_the_definition(bits: int, ranks: int) -> None:
    """20 bits of a number's absolute value are left to each of 1,024 ranks."""
    tensors = random_tensors(np.random.default_rng(ranks), ranks, 100, torch.float32, 3)
    assert torch.equal(summed(tensors, bits) + 0.0, by_numpy(tensors, bits, WORDS) + 0.0)


def test_the_16_bit_formats_are_converted_as_torch_does() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16)
    for dtype, from_half, to_half in (
        (torch.float16, floats.from_float16, floats.to_float16),
        (torch.bfloat16, floats.from_bfloat16, floats.to_bfloat16),
    ):
        wide = torch.from_numpy(halves.view(np.int16)).view(dtype).float()
        finite = wide.isfinite().numpy()
        found = np.array([from_half(half) for half in halves[finite]], np.float32)
        np.testing.assert_array_equal(found.view(np.uint32), wide.numpy()[finite].view(np.uint32))
        rng = np.random.default_rng(1)
        near = np.concatenate([found, np.nextafter(found, np.float32(9e9)), found * np.float32(1 + 2.0**-12)])
        odd = np.concatenate([near, rng.standard_normal(4000).astype(np.float32) * 2.0 ** rng.integers(-30, 20, 4000)])
        odd = odd.astype(np.float32)
        wanted = torch.from_numpy(odd).to(dtype).view(torch.int16).numpy().view(np.uint16)
        np.testing.assert_array_equal(np.array([to_half(number) for number in odd], np.uint16), wanted)
        close = np.concatenate([np.nextafter(near.astype(np.float64) * factor, 9e9) for factor in (1, 1 + 2.0**-9, -3)])
        once = rounded_once(close, dtype).view(torch.int16).numpy().view(np.uint16)
        found = np.array([to_half(floats.to_odd(number)) for number in close], np.uint16)
        np.testing.assert_array_equal(found, once)


@pytest.mark.parametrize("size", [1, WORDS], ids=["part of a block", "block"])
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_a_sum_beside_a_tie_is_rounded_once(dtype: torch.dtype, mean: bool, size: int) -> None:
    """As float32 the sum would be the tie itself."""
    ulp = 64 * torch.finfo(dtype).eps
    for numbers, wanted in (((64, ulp / 2, 2.0**-20, 0), 64 + ulp), ((64 + ulp, ulp / 2, -(2.0**-20), 0), 64 + ulp)):
        tensors = [torch.full((size,), number, dtype=dtype) for number in numbers]
        assert (summed(tensors, 32, mean=mean) == wanted / (4 if mean else 1)).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_by_name_and_place(dtype: Any, bad: float) -> None:
    tensor = np.ones((3, 50), dtype)
    tensor[1, 7] = bad
    for given_tensor, bits in product((tensor, torch.from_numpy(tensor).bfloat16()), BITS):
        with pytest.raises(
            NotFiniteError, match=r"element \[1, 7\] of fc is -?(nan|inf) \(1 such elements\); a sum needs finite"
        ):
            Floats(given_tensor, bits, name="fc").bind(2, WORDS, False)


@pytest.mark.parametrize("lost", [0.0, 0.1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_communicator_sums_in_every_format(dtype: torch.dtype, lost: float) -> None:
    rng = np.random.default_rng(int(10 * lost))
    calls = [(bits, in_place, size) for bits in (None, *BITS) for in_place in (False, True) for size in (1, 33, 1025)]
    tensors = [random_tensors(rng, 3, size, dtype, 3) for *_, size in calls]
    copies = [[tensor.clone() for tensor in row] for row in tensors]

    def rank_main(comm: Communicator) -> list[torch.Tensor]:
        found = []
        for (bits, in_place, _), row in zip(calls, copies, strict=True):
            mine: torch.Tensor = row[comm.rank]
            found.append(comm.all_reduce(mine, bits=bits, out=mine if in_place else None))  # type: ignore[arg-type]
            assert (found[-1] is mine) == in_place
        return found

    with LocalGroup(3, lose=lambda *_: rng.random() < lost) as group:
        by_rank = group.run(rank_main)
    default = 32 if dtype == torch.float32 else 16
    for (bits, *_), row, found in zip(calls, tensors, zip(*by_rank, strict=True), strict=True):
        wanted = by_numpy(row, bits or default, DEFAULT.block_words)
        for one in found:
            assert one.dtype == dtype
            assert torch.equal(one + 0.0, wanted + 0.0)


@pytest.mark.parametrize("size", [33, 300])
@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_of_either_sign_are_zeros_without_one_on_every_rank(dtype: torch.dtype, size: int) -> None:
    for in_place in (False, True):
        tensors = [torch.full((size,), sign * 0.0, dtype=dtype) for sign in (-1, 1)]
        tensors[0][0] = 1  # the other blocks, the last one a part of a block, are not sent
        with LocalGroup(2) as group:
            first, second = group.run(
                lambda comm: comm.all_reduce(tensors[comm.rank], out=tensors[comm.rank] if in_place else None)  # noqa: B023
            )
        assert torch.equal(first.view(torch.uint8), second.view(torch.uint8)) and not first.signbit().any()


@pytest.mark.parametrize("lost", [0.0, 0.1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_each_rank_keeps_a_part_of_a_sum(dtype: torch.dtype, lost: float) -> None:
    rng = np.random.default_rng(int(10 * lost))
    sizes = 3000, 700, 64, 1
    tensors = [random_tensors(rng, 3, size, dtype, 3) for size in sizes]
    for tensor in tensors[0]:
        tensor[900:1300] = 0  # whole blocks that no rank sends
    of_rank = [[(1000 * rank, 1000 * rank + 1000), (0, 700 if rank == 1 else 0), (31, 33), (0, 1)] for rank in range(3)]

    def rank_main(comm: Communicator) -> list[Any]:
        rank, found = comm.rank, []
        for bits in BITS:
            parts = [Floats(row[rank], bits, part=part) for row, part in zip(tensors, of_rank[rank], strict=True)]
            found.append(comm.all_reduce_segments([*parts, Floats(tensors[1][rank], bits)]))
            found.append(comm.all_reduce_segments(parts[:1]))
        return found

    before = [[tensor.clone() for tensor in row] for row in tensors]
    with LocalGroup(3, lose=lambda *_: rng.random() < lost) as group:
        by_rank = group.run(rank_main)
    for rank, found in enumerate(by_rank):
        for number, bits in enumerate(BITS):
            sums = [by_numpy(row, bits, DEFAULT.block_words) for row in tensors]
            wanted = [total[begin:end] for total, (begin, end) in zip(sums, of_rank[rank], strict=True)]
            for one, expected in zip(found[2 * number], [*wanted, sums[1]], strict=True):
                assert one.dtype == dtype and torch.equal(one + 0.0, expected + 0.0)
            assert torch.equal(found[2 * number + 1][0] + 0.0, wanted[0] + 0.0)
    assert all(torch.equal(a, b) for rows in zip(tensors, before, strict=True) for a, b in zip(*rows, strict=True))


def test_a_part_takes_memory_for_its_blocks_alone() -> None:
    segment = Floats(np.ones(1000, np.float32), 32, part=(250, 500))
    assert Layout(segment.bind(4, 10, False)).sums_words == 250
    halves = Floats(np.ones(1000, np.float16), 16, part=(255, 500))
    assert Layout(halves.bind(4, 10, False)).sums_words == 130  # blocks of 20 numbers: 240 to 500


def test_parts_that_are_none_are_refused() -> None:
    tensor = np.ones(100, np.float32)
    for part in ((-1, 5), (5, 4), (0, 101)):
        with pytest.raises(InvalidTensorError, match="no span of the 100 numbers"):
            Floats(tensor, 16, part=part)
    with pytest.raises(InvalidTensorError, match="only a part of the sum is kept"):
        Floats(tensor, 32, part=(0, 5), out=np.empty(100, np.float32))


@pytest.mark.parametrize(("dtype", "bits"), [(torch.bfloat16, 16), (torch.float32, 32)])
def test_a_strided_tensor_is_read_in_its_own_order(dtype: torch.dtype, bits: int) -> None:
    tensor = torch.arange(24, dtype=dtype).reshape(4, 6)[::2].T
    assert torch.equal(summed([tensor], bits), tensor)
    assert to_numpy(tensor).shape == Floats(tensor, bits).values.shape == (6, 2)
    backwards = np.arange(24, dtype=np.float32)[::-2]
    assert (summed([backwards], bits) == backwards).all()


def test_other_arguments_are_refused_on_all_ranks() -> None:
    def rank_main(comm: Communicator) -> None:
        with pytest.raises(InvalidTensorError if comm.rank else PeerRefusedError):
            comm.all_reduce(np.ones(3, np.float32), bits=4 if comm.rank else None)  # type: ignore[arg-type]
        with pytest.raises(InvalidTensorError, match="summed exactly"):
            comm.all_reduce(np.ones(3, np.int32), bits=16)
        np.testing.assert_array_equal(comm.all_reduce(np.ones(3, np.float32)), 2)

    with LocalGroup(2) as group:
        group.run(rank_main)

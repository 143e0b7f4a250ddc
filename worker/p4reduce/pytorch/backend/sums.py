"""Sums of tensors over the switch, by dtype, whole or in part.

int32 is sent as it is, floats in the group's bits (codecs/formats.py), complex64 as pairs of float32. Sums of
float16 and bfloat16 are rounded once more to their type. AVG is the sum divided by the number of ranks before the last
rounding; of integers it is cut towards zero. `refuse_underflow` is as in `Communicator.all_reduce`, for each tensor.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist

from p4reduce.codecs import Floats, Int32, Segment
from p4reduce.codecs.arrays import float_dtypes
from p4reduce.collectives import MOST_BYTES as MOST_BYTES

if TYPE_CHECKING:
    from p4reduce.codecs.formats import Bits
    from p4reduce.communicator import Communicator

Parts = Sequence[tuple[int, int]] | None
"""The begin and end of a span of each tensor, flattened; the ranks may have different ones. None: the tensors whole."""

DTYPES: Final = frozenset({*float_dtypes(), torch.int32, torch.complex64})
"""The types that the switch can sum."""


def in_rows(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors as they are, or, if they take several collectives, contiguous."""
    return [tensor.detach() if _bytes_of(tensors) <= MOST_BYTES else tensor.detach().contiguous() for tensor in tensors]


def collectives(
    rows: Sequence[torch.Tensor], timeout_s: float
) -> Iterator[tuple[slice, list[torch.Tensor], int, float]]:
    """Return for each collective the places of its tensors, these or a piece of one, its begin, and a time limit."""
    until = time.monotonic() + timeout_s
    if _bytes_of(rows) <= MOST_BYTES:
        yield slice(None), list(rows), 0, timeout_s
        return
    for place, row in enumerate(rows):
        most = MOST_BYTES // row.element_size()
        for number, piece in enumerate(torch.split(row.view(-1), most)):
            yield slice(place, place + 1), [piece], number * most, max(1e-3, until - time.monotonic())


def _bytes_of(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def over_switch(
    comm: Communicator,
    tensors: Sequence[torch.Tensor],
    parts: Parts,
    *,
    average: bool,
    timeout_s: float,
    bits: Bits | None = None,
    refuse_underflow: bool = False,
) -> list[torch.Tensor]:
    """Sum tensors over all ranks in one collective; `parts` and the result as of `keep`.

    Where a rank refuses, the tensors stay as they were: no block is sent before all ranks are known to take part. Every
    rank receives all sums, but of floats only the numbers of its parts are decoded.
    """
    given = [_as_words(tensor.detach()) for tensor in tensors]
    outs = [words if parts is None and words.is_contiguous() and not words.is_neg() else None for words in given]
    if parts is None and len(given) == 1 and not average:
        how: Any = {} if given[0].dtype == torch.int32 else {"bits": bits, "refuse_underflow": refuse_underflow}
        sums = [comm.all_reduce(given[0], out=outs[0], timeout_s=timeout_s, **how)]
    else:
        segments: list[Segment] = []
        for place, (words, out) in enumerate(zip(given, outs, strict=True)):
            if words.dtype == torch.int32:
                segments.append(Int32(words, out=out))
                continue
            numbers = 2 if tensors[place].is_complex() else 1
            part = None if parts is None else (numbers * parts[place][0], numbers * parts[place][1])
            segments.append(Floats(words, bits, mean=average, out=out, part=part, refuse_underflow=refuse_underflow))
        sums = comm.all_reduce_segments(segments, timeout_s=timeout_s)
    found = []
    for place, (tensor, total) in enumerate(zip(tensors, sums, strict=True)):
        if tensor.dtype == torch.int32 and parts is not None:
            total = total.reshape(-1)[slice(*parts[place])]
        if tensor.dtype == torch.int32 and average:
            total = mean_of(total, comm.world_size)
        found.append(torch.view_as_complex(total.reshape(-1, 2)) if tensor.is_complex() else total)
    return write(tensors, found) if parts is None else found


def keep(tensors: Sequence[torch.Tensor], parts: Parts, sums: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the parts of the tensors' sums, flat; without `parts` do as `write`."""
    if parts is None:
        return write(tensors, sums)
    return [total.reshape(-1)[begin:end] for total, (begin, end) in zip(sums, parts, strict=True)]


def write(tensors: Sequence[torch.Tensor], sums: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Write sums to the tensors, each of as many numbers; return the tensors."""
    for tensor, total in zip(tensors, sums, strict=True):
        if total.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(total.reshape(tensor.shape))
    return list(tensors)


def _as_words(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype == torch.complex64:
        return torch.view_as_real(tensor.resolve_conj()).contiguous()
    return tensor


def spans_of(pieces: Sequence[torch.Tensor], first: int, parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return what pieces of tensors, which begin at `first`, have of the tensors' parts."""
    return [
        (min(max(begin - first, 0), piece.numel()), min(max(end - first, 0), piece.numel()))
        for piece, (begin, end) in zip(pieces, parts, strict=True)
    ]


def names_at(names: list[str], begin: int) -> list[str]:
    """Return the names of pieces of tensors that are compressed."""
    return [f"{name} from {begin}" for name in names] if begin else names


def multiplied(tensors: list[torch.Tensor], opts: Any, *, in_place: bool = False) -> list[torch.Tensor]:
    """Return what a PREMUL_SUM adds, each tensor times this rank's factor, and make the operation a SUM.

    Raises TypeError for tensors of integers.
    """
    if opts.reduceOp != dist.ReduceOp.PREMUL_SUM:
        return tensors
    if whole := [tensor.dtype for tensor in tensors if not (tensor.is_floating_point() or tensor.is_complex())]:
        raise TypeError(f"PREMUL_SUM multiplies floats, and a tensor is {whole[0]}")
    factor = float(opts.reduceOp.__getstate__()[1])  # a number, or a tensor with one
    opts.reduceOp = dist.ReduceOp.SUM
    if not in_place:
        return [tensor.detach() * factor for tensor in tensors]
    for tensor in tensors:
        tensor.detach().mul_(factor)
    return tensors


def mean_of(total: torch.Tensor, ranks: int) -> torch.Tensor:
    """Return a sum divided by the number of ranks; of integers it is cut towards zero."""
    whole = not (total.is_floating_point() or total.is_complex())
    return torch.div(total, ranks, rounding_mode="trunc" if whole else None)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's bytes, [bytes], which may share its memory."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)

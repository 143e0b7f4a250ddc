"""The choice of elements bin by bin, and the signs of them: kernels.py, called with tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from p4reduce.compressors.step import Step
from p4reduce_runtime.kernels import arguments

_NOTHING = torch.zeros(0)


class Selection(NamedTuple):
    """The chosen elements of a gradient and its residue."""

    total: torch.Tensor
    """G = R + dW, a new tensor, float32 [elements]."""
    indices: torch.Tensor
    """Of the elements chosen, rising, int64 [chosen]."""
    largest: torch.Tensor | None = None
    """Of each bin the largest |G|, float32 [bins]; None where the choice did not compute it."""


class Selections(NamedTuple):
    """The chosen elements of several gradients and their residues, one parameter after the other."""

    total: torch.Tensor
    """G = R + dW of all, a new tensor, float32 [elements of all]."""
    begin: NDArray[np.int64]
    """[parameters + 1]: where each begins in `total`, and the end."""
    indices: NDArray[np.int64]
    """Of the elements chosen, counted from their parameter's first; rising for each."""
    ends: NDArray[np.int64]
    """[parameters]: where each one's end in `indices`."""
    scales: NDArray[np.float32]
    """[parameters]: the mean over the bins of the largest |G|."""


class Signs(NamedTuple):
    """The elements of several parameters whose signs are sent, one parameter after the other."""

    indices: NDArray[np.int64]
    """Counted from their parameter's first; rising for each."""
    signs: NDArray[np.int8]
    """-1 or 1."""
    ends: NDArray[np.int64]
    """[parameters]: where each one's end."""


def load_kernels() -> None:
    """Load the kernels. The first time on a machine they are compiled, which takes seconds."""
    import p4reduce.compressors.kernels  # noqa: F401


def select_by_bin(step: Step, length: int, *, per_bin: int = 0) -> Selection:
    """Choose elements in each bin of `length` elements, nothing of a gradient that is all zero.

    With `per_bin` the elements of the largest |G|, as many in a bin and none where G is 0, the first among equals;
    else those where |G + dW| reaches the largest |G| of the bin, and that is more than 0.

    Raises InvalidTensorError as `Step.add_residue` does.
    """
    import p4reduce.compressors.kernels as kernels

    step.check_residue()
    elements = step.flat.numel()
    total = empty(elements)
    largest = np.empty(-(-elements // length), np.uint32)
    indices = np.empty(elements + 1, np.int64)  # only the pages that are written to take memory
    sums = total.numpy()
    residue = _floats(_NOTHING if step.state.residue is None else step.state.residue)
    count = kernels.select(residue, _floats(step.flat), length, per_bin, sums, sums.view(np.uint32), largest, indices)
    if count < 0:
        raise step.not_finite()
    return Selection(total, torch.from_numpy(indices[:count].copy()), torch.from_numpy(largest.view(np.float32)))


def select_all_by_bin(steps: Sequence[Step], lengths: Sequence[int]) -> Selections:
    """Choose elements in each bin where |G + dW| reaches the largest |G| of the bin; see `select_by_bin`.

    `lengths`: of the bins of each parameter. Raises InvalidTensorError as `Step.add_residue` does.
    """
    import p4reduce.compressors.kernels as kernels

    for step in steps:
        step.check_residue()
    sizes = [step.flat.numel() for step in steps]
    begin = begins_of(sizes)
    elements = int(begin[-1])
    gradients = flat([step.flat for step in steps])
    kept = [step.state.residue for step in steps if step.state.residue is not None]
    residues = flat(kept)
    has_one = np.array([step.state.residue is not None for step in steps])
    residue_begin = np.full(len(steps), -1)
    residue_begin[has_one] = residues.begin
    of_bins = np.array(lengths)
    parts = arguments(kernels.Parts(np.array(sizes), of_bins, residue_begin, gradients.begin, begin))
    total, scales = empty(elements), np.empty(len(steps), np.float32)
    largest, ends = np.empty(int(-(-parts.elements // of_bins).sum()), np.uint32), np.empty(len(steps), np.int64)
    indices = np.empty(elements + 1, np.int64)  # only the pages that are written to take memory
    sums = total.numpy()
    bad = kernels.select_all(
        parts, residues.numbers, gradients.numbers, sums, sums.view(np.uint32), largest, indices, ends, scales
    )
    if bad >= 0:
        raise steps[bad].not_finite()
    return Selections(total, begin, indices[: ends[-1]].copy(), ends, scales)


def join(selections: Sequence[Selection], scales: Sequence[float]) -> Selections:
    """Join what was chosen of one parameter after the other, each with its scale."""
    return Selections(
        torch.cat([one.total for one in selections]),
        begins_of([one.total.numel() for one in selections]),
        torch.cat([one.indices for one in selections]).numpy(),
        np.cumsum([len(one.indices) for one in selections]),
        np.array(scales, np.float32),
    )


def largest_by_bin(total: torch.Tensor, length: int) -> torch.Tensor:
    """Return the largest magnitude in each bin of finite float32 [elements]: float32 [bins]."""
    import p4reduce.compressors.kernels as kernels

    largest = np.empty(-(-total.numel() // length), np.uint32)
    kernels.largest_by_bin(_floats(total).view(np.uint32), length, largest)
    return torch.from_numpy(largest.view(np.float32))


def subtract_signs(selections: Selections, amounts: NDArray[np.float32]) -> Signs:
    """Subtract a parameter's own of `amounts`, 0 or more, times its sign from each element chosen that is not 0.

    Returns those that are not 0.
    """
    import p4reduce.compressors.kernels as kernels

    total, begin, indices, ends, _ = selections
    kept, signs, kept_ends = np.empty(len(indices), np.int64), np.empty(len(indices), np.int8), np.empty_like(ends)
    count = kernels.subtract_all(total.numpy(), begin, indices, ends, amounts, kept, signs, kept_ends)
    return Signs(kept[:count], signs[:count], kept_ends)


class Flat(NamedTuple):
    """Several tensors as parts of one array, which one kernel call reaches, and where each of them begins."""

    numbers: NDArray[np.float32]
    begin: NDArray[np.int64]


def flat(tensors: Sequence[torch.Tensor]) -> Flat:
    """Return tensors of [elements], of any type and layout, as float32: without a copy where they share memory already.

    The gradients of a bucket do, and so do the residues that were computed in one step. Otherwise they are joined.
    """
    made = [_as_float32(tensor) for tensor in tensors]
    if not made:
        return Flat(np.zeros(0, np.float32), np.zeros(0, np.int64))
    storage = made[0].untyped_storage()
    at = storage.data_ptr()
    if all(tensor.untyped_storage().data_ptr() == at for tensor in made) and storage.nbytes() % 4 == 0:
        whole = torch.empty(0).set_(storage)
        return Flat(whole.numpy(), np.array([tensor.storage_offset() for tensor in made]))
    sizes = np.array([tensor.numel() for tensor in made])
    return Flat(torch.cat(made).numpy(), np.cumsum(sizes) - sizes)


def empty(elements: int) -> torch.Tensor:
    """Return memory for so many float32: numpy's has huge pages, of which the first use takes a tenth of torch's."""
    return torch.from_numpy(np.empty(elements, np.float32))


def begins_of(sizes: Sequence[int]) -> NDArray[np.int64]:
    """Return where each of these begins when they lie one after the other, and where the last ends."""
    return np.cumsum([0, *sizes], dtype=np.int64)


def _as_float32(tensor: torch.Tensor) -> torch.Tensor:
    """Return the numbers of a tensor [elements] on the CPU as float32, contiguous."""
    if tensor.dtype == torch.float32 and tensor.device.type == "cpu" and not tensor.is_neg() and tensor.is_contiguous():
        return tensor.detach()
    return tensor.detach().to("cpu", torch.float32).resolve_neg().contiguous()


def _floats(tensor: torch.Tensor) -> NDArray[np.float32]:
    """Return the numbers of a tensor [elements] as float32, contiguous."""
    return _as_float32(tensor).numpy()

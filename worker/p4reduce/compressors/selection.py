"""The choice of elements bin by bin, and the signs of them: kernels.py, called with tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from p4reduce.codecs.coordinates import Coordinates
from p4reduce.compressors.step import Step


class Selection(NamedTuple):
    """The chosen elements of several gradients and their residues, one parameter after the other."""

    total: torch.Tensor
    """G = R + dW of all, a new tensor, float32 [elements of all]."""
    begin: NDArray[np.int64]
    """[parameters + 1]: where each begins in `total`, and the end."""
    indices: NDArray[np.int64]
    """The elements chosen, counted from their parameter's first; rising for each."""
    ends: NDArray[np.int64]
    """[parameters]: where each one's end in `indices`."""
    scales: NDArray[np.float32]
    """[parameters]: what the sign of a chosen element stands for."""

    @property
    def totals(self) -> Sequence[torch.Tensor]:
        """G of each parameter."""
        return self.total.split_with_sizes(np.diff(self.begin).tolist())


def select_by_bin(steps: Sequence[Step], *, largest_only: bool = False) -> Selection:
    """Choose elements in each bin of `Step.length` elements, nothing of a gradient that is all zero.

    Those where |G + dW| reaches the largest |G| of the bin, or with `largest_only` the first that has it, if that is
    more than 0. A parameter's scale is the mean over its bins of the largest |G|.

    Raises InvalidTensorError as `Step.add_residue` does.
    """
    import p4reduce.compressors.kernels as kernels

    for step in steps:
        step.check_residue()
    begin = begins_of([step.flat.numel() for step in steps])
    gradients = flat([step.flat for step in steps])
    residues = flat([step.state.residue for step in steps if step.state.residue is not None])
    residue_begin = np.full(len(steps), -1)
    residue_begin[[step.state.residue is not None for step in steps]] = residues.begin
    lengths = np.array([step.length for step in steps])
    parts = kernels.Parts(np.diff(begin), lengths, residue_begin, gradients.begin, begin)
    total, ends, scales = empty(int(begin[-1])), np.empty(len(steps), np.int64), np.empty(len(steps), np.float32)
    indices = np.empty(int(begin[-1]) + 1, np.int64)  # only the pages that are written to take memory
    bad = kernels.select(parts, largest_only, residues.numbers, gradients.numbers, total.numpy(), indices, ends, scales)
    if bad >= 0:
        raise steps[bad].not_finite()
    return Selection(total, begin, indices[: ends[-1]].copy(), ends, scales)


def subtract_signs(selected: Selection, amounts: NDArray[np.float32]) -> Coordinates:
    """Subtract a parameter's own of `amounts`, 0 or more, times its sign from each element chosen that is not 0.

    Returns what was subtracted.
    """
    import p4reduce.compressors.kernels as kernels

    total, begin, indices, ends, _ = selected
    kept, signs, kept_ends = np.empty(len(indices), np.int64), np.empty(len(indices), np.int8), np.empty_like(ends)
    count = kernels.subtract(total.numpy(), begin, indices, ends, amounts, kept, signs, kept_ends)
    return Coordinates(kept[:count], signs[:count], kept_ends, amounts)


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

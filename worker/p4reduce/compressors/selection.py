"""The choice of elements bin by bin, and the signs of them: kernels.py, called with tensors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from p4reduce.compressors.step import Step

_NOTHING = torch.zeros(0)


class Selection(NamedTuple):
    """The chosen elements of a gradient and its residue."""

    total: torch.Tensor
    """G = R + dW, a new tensor, float32 [elements]."""
    indices: torch.Tensor
    """Of the elements chosen, rising, int64 [chosen]."""
    largest: torch.Tensor | None = None
    """Of each bin the largest |G|, float32 [bins]; None where the choice did not compute it."""


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
    total = torch.empty(elements)
    largest = np.empty(-(-elements // length), np.uint32)
    indices = np.empty(elements + 1, np.int64)  # only the pages that are written to take memory
    sums = total.numpy()
    residue = _floats(_NOTHING if step.state.residue is None else step.state.residue)
    count = kernels.select(residue, _floats(step.flat), length, per_bin, sums, sums.view(np.uint32), largest, indices)
    if count < 0:
        raise step.not_finite()
    return Selection(total, torch.from_numpy(indices[:count].copy()), torch.from_numpy(largest.view(np.float32)))


def largest_by_bin(total: torch.Tensor, length: int) -> torch.Tensor:
    """Return the largest magnitude in each bin of finite float32 [elements]: float32 [bins]."""
    import p4reduce.compressors.kernels as kernels

    largest = np.empty(-(-total.numel() // length), np.uint32)
    kernels.largest_by_bin(_floats(total).view(np.uint32), length, largest)
    return torch.from_numpy(largest.view(np.float32))


def subtract_signs(total: torch.Tensor, indices: torch.Tensor, amount: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Subtract `amount` times its sign from each element at `indices`; return those that are not 0, and their signs.

    `total`: float32, contiguous, on the CPU. `amount`: 0 or more. Returns int64 and int8 tensors of equal length.
    """
    import p4reduce.compressors.kernels as kernels

    kept, signs = np.empty(len(indices), np.int64), np.empty(len(indices), np.int8)
    count = kernels.subtract(total.numpy(), indices.numpy(), np.float32(amount), kept, signs)
    return torch.from_numpy(kept[:count]), torch.from_numpy(signs[:count])


def _floats(tensor: torch.Tensor) -> NDArray[np.float32]:
    """Return the numbers of a tensor [elements] as float32, contiguous."""
    return tensor.detach().to("cpu", torch.float32).resolve_neg().contiguous().numpy()

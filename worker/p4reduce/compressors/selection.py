"""The choice of elements bin by bin, compiled where it can be; the same bits as the methods' own Python.

The Python is the reference. Where the kernels do not apply (no numba, numbers that are not finite, a residue of another
length) these functions return None, and the caller uses the Python.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from p4reduce.compressors.step import Step
from p4reduce_runtime import kernels

_NOTHING = torch.zeros(0)


class Selection(NamedTuple):
    """The chosen elements of a gradient and its residue."""

    total: torch.Tensor
    """G = R + dW, a new tensor, float32 [elements]."""
    largest: torch.Tensor
    """Of each bin the largest |G|, float32 [bins]."""
    indices: torch.Tensor
    """Of the elements chosen, rising, int64 [chosen]."""


@cache
def compiled() -> ModuleType | None:
    """Return the kernels, compiled if need be; None where there are none."""
    return kernels.load("p4reduce.compressors.kernels")


def select_by_bin(step: Step, length: int, *, doubled: bool, zeros: bool = True) -> Selection | None:
    """Choose where |G| (`doubled`: |G + dW|) reaches the largest |G| of its bin, and that is more than 0.

    Nothing of a gradient that is all zero; without `zeros` no element where G is 0. None: choose without kernels.
    """
    module = compiled()
    residue = _NOTHING if step.state.residue is None else step.state.residue
    if module is None or not (_is_plain(step.flat) and _is_plain(residue)):
        return None
    elements = step.flat.numel()
    if step.state.residue is not None and residue.numel() != elements:
        return None
    total = torch.empty(elements)
    largest = np.empty(-(-elements // length), np.uint32)
    indices = np.empty(elements + 1, np.int64)  # only the pages that are written to take memory
    sums = total.numpy()
    count = module.select(
        _floats(residue), _floats(step.flat), length, doubled, zeros, sums, sums.view(np.uint32), largest, indices
    )
    if count < 0:
        return None
    return Selection(total, torch.from_numpy(largest.view(np.float32)), torch.from_numpy(indices[:count].copy()))


def subtract_signs(total: torch.Tensor, indices: torch.Tensor, amount: float) -> torch.Tensor:
    """Subtract `amount` times its sign from each element at `indices`, none of them 0; return the signs, int8.

    `total`: float32, contiguous, on the CPU. `amount`: 0 or more.
    """
    module = compiled()
    if module is None:
        signs = total[indices].sign()
        total[indices] -= signs * amount
        return signs.to(torch.int8)
    found = np.empty(len(indices), np.int8)
    module.subtract(total.numpy(), indices.numpy(), np.float32(amount), found)
    return torch.from_numpy(found)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether numpy can see the numbers as they are."""
    return tensor.dtype == torch.float32 and tensor.device.type == "cpu" and tensor.layout is torch.strided


def _floats(tensor: torch.Tensor) -> NDArray[np.float32]:
    """Return the numbers of a plain tensor [elements], contiguous."""
    return tensor.detach().resolve_neg().contiguous().numpy()

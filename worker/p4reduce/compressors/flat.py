"""Several tensors as parts of one array, so that one kernel call reaches all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray


class Flat(NamedTuple):
    """One array, and where in it each tensor begins."""

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


def begins_of(sizes: Sequence[int]) -> NDArray[np.int64]:
    """Return where each of these begins when they lie one after the other, and where the last ends."""
    return np.cumsum([0, *sizes], dtype=np.int64)


def _as_float32(tensor: torch.Tensor) -> torch.Tensor:
    """Return the numbers of a tensor [elements] on the CPU as float32, contiguous."""
    if tensor.dtype == torch.float32 and tensor.device.type == "cpu" and not tensor.is_neg() and tensor.is_contiguous():
        return tensor.detach()
    return tensor.detach().to("cpu", torch.float32).resolve_neg().contiguous()

"""Cutting a flat parameter into bins (chunks, blocks) of equal length; the last may be partial."""

from __future__ import annotations

import numpy as np
import torch


def by_bin(flat: torch.Tensor, length: int) -> torch.Tensor:
    """Return [elements] as [bins, length], with zeros after the last element."""
    bins = -(-flat.numel() // length)
    missing = bins * length - flat.numel()
    return (torch.nn.functional.pad(flat, (0, missing)) if missing else flat).view(bins, length)


def without_padding(binned: torch.Tensor, elements: int) -> torch.Tensor:
    """Return [bins, length] as [elements]."""
    return binned.reshape(-1)[:elements]


def count_bins_held(integers: torch.Tensor, length: int) -> int:
    """Return in how many bins of int32 [elements] one or another is not zero."""
    whole = integers.numel() // length * length
    bins = np.bitwise_or.reduce(integers[:whole].numpy().reshape(-1, length), axis=1)  # torch's any is ten times slower
    return int(np.count_nonzero(bins)) + bool(integers[whole:].any())


def mean_of(values: torch.Tensor) -> float:
    """Return the mean, in double precision so that it cannot overflow; 0 of nothing, where torch's would be NaN."""
    return float(values.mean(dtype=torch.float64)) if values.numel() else 0.0

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


def count_bins_held(numbers: torch.Tensor, length: int) -> int:
    """Return in how many bins of int32 or float32 [elements] one or another is not zero."""
    bits = numbers.detach().numpy().view(np.uint32)
    magnitude = np.uint32(0x7FFF_FFFF if numbers.is_floating_point() else 0xFFFF_FFFF)  # -0.0 is zero too
    whole = bits.size // length * length
    held = np.bitwise_or.reduce(bits[:whole].reshape(-1, length), axis=1) & magnitude  # torch's any is ten times slower
    return int(np.count_nonzero(held)) + bool((bits[whole:] & magnitude).any())


def mean_of(values: torch.Tensor) -> float:
    """Return the mean, in double precision so that it cannot overflow; 0 of nothing, where torch's would be NaN."""
    return float(values.mean(dtype=torch.float64)) if values.numel() else 0.0

"""Cutting a flat parameter into bins (chunks, blocks) of equal length; the last may be partial."""

from __future__ import annotations

import torch


def by_bin(flat: torch.Tensor, length: int) -> torch.Tensor:
    """Return [elements] as [bins, length], with zeros after the last element."""
    bins = -(-flat.numel() // length)
    missing = bins * length - flat.numel()
    return (torch.nn.functional.pad(flat, (0, missing)) if missing else flat).view(bins, length)


def without_padding(binned: torch.Tensor, elements: int) -> torch.Tensor:
    """Return [bins, length] as [elements]."""
    return binned.reshape(-1)[:elements]


def mean_of(values: torch.Tensor) -> float:
    """Return the mean, in double precision so that it cannot overflow; 0 of nothing, where torch's would be NaN."""
    return float(values.mean(dtype=torch.float64)) if values.numel() else 0.0

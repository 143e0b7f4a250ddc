"""Results compared bit for bit."""

from __future__ import annotations

from typing import Any

import torch


def bits(value: Any) -> Any:
    """Nested values with each array and tensor as its type and bytes: equal only where every bit is."""
    if isinstance(value, torch.Tensor):
        value = value.detach().contiguous().numpy()
    if hasattr(value, "tobytes"):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, dict):
        return {key: bits(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [bits(inner) for inner in value]
    if isinstance(value, float):
        return value.hex()
    return value

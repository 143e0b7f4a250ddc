"""The compressors' and codecs' kernels, switched off for a while: then the Python path, their oracle, runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

import pytest
import torch

from p4reduce.codecs import coordinates
from p4reduce.compressors import selection

T = TypeVar("T")

MODULES = (coordinates, selection)
"""Those that have kernels: `compiled` in each."""


def needs_kernels() -> None:
    """Skip a test of the kernels where there are none."""
    if any(module.compiled() is None for module in MODULES):
        pytest.skip("no kernels: numba is not installed, or P4REDUCE_KERNELS=off")


@contextmanager
def in_python() -> Iterator[None]:
    """Go without kernels."""
    patches = [mock.patch.object(module, "compiled", lambda: None) for module in MODULES]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def both(call: Callable[[], T]) -> tuple[T | str, T | str]:
    """What `call` returns, or the error it raises, with kernels and without."""
    with_kernels = _outcome(call)
    with in_python():
        return with_kernels, _outcome(call)


def _outcome(call: Callable[[], T]) -> T | str:
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


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

"""The memory that a sum is written to."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from p4reduce.codecs.arrays import Tensor, address, as_kind_of, is_torch, shared_array
from p4reduce.errors import InvalidTensorError
from p4reduce.protocol.blocks import Array


class Output:
    """An array or a torch tensor that a sum is written to."""

    def __init__(self, out: Tensor, given: Tensor, values: Array, *, plain: bool = False) -> None:
        """`given` is the tensor that is summed, and `values` the memory where it is read.

        `plain`: that is its own memory, C-contiguous. Raises InvalidTensorError for an `out` that cannot hold the sum.
        """
        self._out: Any = out
        self.flat: Array | None
        """The memory of `out`, flat; None where a sum can only be copied there."""
        self.in_place: bool
        """Whether the sum takes the place of what is summed."""
        if plain and out is given and values.flags.writeable:
            self._is_torch, self._is_elsewhere, self.in_place = type(out) is not np.ndarray, False, True
            self._array, self.flat = values, values if values.ndim == 1 else values.reshape(-1)
            return
        if (
            type(out) is np.ndarray
            and out is not given
            and out.dtype == given.dtype
            and out.shape == given.shape
            and type(given) is type(out)
        ):
            flags = out.flags
            if flags.carray and not np.may_share_memory(out, values):  # as almost all are
                self._is_torch = self._is_elsewhere = self.in_place = False
                self._array, self.flat = out, out.reshape(-1)
                return
        self._is_torch, self._is_elsewhere = is_torch(out), _is_elsewhere(out)
        array = values if out is given and _is_memory_of(values, out) else _writable(out, given)
        self.in_place = address(array) == address(values) and array.strides == values.strides
        if not self.in_place and np.may_share_memory(array, values):
            raise InvalidTensorError("out overlaps the tensor; give the tensor itself, or memory of its own")
        self._array = array
        direct = array.flags.c_contiguous and array.flags.aligned and not self._is_elsewhere
        self.flat = array.reshape(-1) if direct else None

    def write(self, result: Array) -> Tensor:
        """Write a sum, rounded to the type of `out`; return `out`."""
        out: Tensor = self._out
        if self._is_elsewhere or (self._is_torch and result.dtype != self._array.dtype):
            self._out.detach().copy_(as_kind_of(self._out, result))
            return out
        np.copyto(self._array, result, casting="same_kind")
        return self.written()

    def written(self) -> Tensor:
        """Return `out`, which has the sum."""
        out: Tensor = self._out
        if self._is_torch:
            import torch

            torch.autograd.graph.increment_version(self._out)  # for what autograd has kept of it
        return out


def _writable(out: Tensor, given: Tensor) -> Array:
    """Return the memory of `out`, or for one on another device any of that shape. Raises InvalidTensorError."""
    kind, same = ("torch tensor", is_torch(out)) if is_torch(given) else ("numpy array", isinstance(out, np.ndarray))
    if not same:
        raise InvalidTensorError(f"out is a {type(out).__name__}; give a {kind}, as the tensor is")
    if out.dtype != given.dtype or tuple(out.shape) != tuple(given.shape):
        raise InvalidTensorError(
            f"out is {out.dtype}{list(out.shape)}; give one like the tensor, {given.dtype}{list(given.shape)}"
        )
    if is_torch(out):
        torch = sys.modules["torch"]
        if out.is_meta or out.layout is not torch.strided:
            raise InvalidTensorError("out has no plain memory (meta or sparse); give a dense tensor")
        array: Array = np.empty(tuple(out.shape), np.int32) if _is_elsewhere(out) else shared_array(out)
    else:
        array = np.asarray(out)
        if not array.flags.writeable:
            raise InvalidTensorError("out is read-only; give an array that can be written to")
    if array.size and any(stride == 0 and size > 1 for stride, size in zip(array.strides, array.shape, strict=True)):
        raise InvalidTensorError("elements of out share memory (it was expanded); give it memory for each")
    return array


def _is_memory_of(values: Array, given: Tensor) -> bool:
    """Return whether an array that was made of a tensor is its memory, and may be written to."""
    if is_torch(given):
        return given.is_cpu and given.data_ptr() == address(values) and not given.is_neg()
    return values.base is given and values.flags.writeable


def _is_elsewhere(out: Tensor) -> bool:
    return is_torch(out) and (out.device.type != "cpu" or out.is_neg())

"""Tensors in, tensors out: numpy arrays, and torch tensors without importing torch."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import numpy as np

from p4reduce.errors import InvalidTensorError
from p4reduce.protocol.blocks import Array

if TYPE_CHECKING:
    import torch
    from typing_extensions import TypeIs

Tensor: TypeAlias = "Array | torch.Tensor"
"""A tensor that collectives take and return."""
Scalar = TypeVar("Scalar", bound=np.generic)
FLOATS: Final[Mapping[str, np.dtype[Any]]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype([("bfloat16", np.uint16)]),
}
"""The floating-point types that are summed, by torch's name. One that numpy lacks is a record of its bits, under it."""
FLOAT_NAMES: Final = ", ".join([*FLOATS][:-1]) + " or " + [*FLOATS][-1]
"""These names as errors have them."""


def is_torch(tensor: object) -> TypeIs[torch.Tensor]:
    """Whether this is a torch tensor (then torch has been imported already, by the caller)."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def to_numpy(tensor: Tensor, what: str = "the tensor") -> Array:
    """A C-contiguous and aligned numpy array; shares memory with the tensor where it can."""
    if is_torch(tensor):
        if tensor.is_meta:
            raise InvalidTensorError(
                f"{what} is on the device meta, without any numbers; give it some (to_empty) first"
            )
        if tensor.layout is not sys.modules["torch"].strided:
            raise InvalidTensorError(f"{what} is sparse ({tensor.layout}); give its to_dense(): zeros do not travel")
        try:
            tensor = shared_array((tensor if tensor.is_cpu else tensor.detach().cpu()).resolve_conj().resolve_neg())
        except (TypeError, RuntimeError) as error:
            raise InvalidTensorError(f"{what} is {tensor.dtype}, which numpy does not know; convert it") from error
    if type(tensor) is np.ndarray and tensor.flags.c_contiguous and tensor.flags.aligned:
        return tensor.view()  # as almost all are; np.require would look at it for longer
    if not isinstance(tensor, np.ndarray):
        kind = type(tensor).__name__
        raise InvalidTensorError(f"{what} is a {kind}; give a numpy array or a torch tensor")
    return np.require(tensor, requirements=["C", "A", "E"]).reshape(tensor.shape)


def plain_array(tensor: Tensor) -> Array | None:
    """Return the memory of a C-contiguous tensor on the CPU; None of others, of which `to_numpy` says more."""
    if type(tensor) is np.ndarray:
        array = tensor.view()
    else:
        try:
            array = (tensor.detach() if tensor.requires_grad else tensor).numpy()  # type: ignore[union-attr]
        except (TypeError, RuntimeError):  # numpy lacks its type, or cannot read its memory
            try:
                array = shared_array(tensor)  # type: ignore[arg-type]
            except (TypeError, RuntimeError):
                return None
        except AttributeError:
            return None
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else None


def as_kind_of(tensor: Tensor, result: Array) -> Tensor:
    """Return `result` as the kind of thing that `tensor` is: numpy, or torch on the same device."""
    return _to_torch(result).to(tensor.device) if is_torch(tensor) else result


def _to_torch(array: Array) -> torch.Tensor:
    import torch

    if array.dtype.names is None:
        return torch.from_numpy(array)
    (name,) = array.dtype.names
    return torch.from_numpy(array.view(f"i{array.itemsize}")).view(getattr(torch, name))


def known_to_numpy(array: Array) -> Array:
    """Return an array as it is, or as float32 where numpy lacks its type."""
    if array.dtype.names is None:
        return array
    floats: Array = _to_torch(array).float().numpy()
    return floats


def shared_array(tensor: torch.Tensor) -> Array:
    """Return the memory of a torch tensor on the CPU as a numpy array; TypeError for a dtype that numpy does not have.

    One of FLOATS that numpy lacks has its dtype there.
    """
    import torch

    tensor = tensor.detach()
    dtype = float_dtypes().get(tensor.dtype)
    if dtype is None or dtype.names is None:
        array: Array = tensor.numpy()
        return array
    return tensor.view(getattr(torch, f"int{8 * dtype.itemsize}")).numpy().view(dtype)


def dtype_of(tensor: Tensor, what: str = "the tensor") -> np.dtype[Any]:
    """Return the type that `to_numpy` gives a tensor's array."""
    found = float_dtypes().get(tensor.dtype) if is_torch(tensor) else None
    return to_numpy(tensor, what).dtype if found is None else found


@functools.cache
def float_dtypes() -> dict[torch.dtype, np.dtype[Any]]:
    """Return torch's types of FLOATS, and what arrays have for them."""
    import torch

    return {getattr(torch, name): dtype for name, dtype in FLOATS.items()}


def address(array: Array) -> int:
    """Return where an array begins in memory; `array.ctypes` takes several times as long."""
    begin: int = array.__array_interface__["data"][0]
    return begin


NEGATIVE_ZEROS, NOT_FINITE, ZERO_BLOCKS = 1, 2, 4
"""What a scan of floats finds (kernels.py): a block of zeros with a negative one, NaN or infinity, a block of zeros."""
COUNT_SHIFT: Final = 3
"""Bits below the count in what it returns, of numbers that are not 0 and at most the limit of their block."""
NO_LIMITS: Final = np.empty(0, np.uint32)


def name_element(tensor: str | None, shape: tuple[int, ...], index: int) -> str:
    """Name element `index` of the flattened tensor by its place in `shape`, for error messages."""
    where = tuple(int(i) for i in np.unravel_index(index, shape)) if shape else ()
    return f"element {list(where)} of {tensor or 'the tensor'}"

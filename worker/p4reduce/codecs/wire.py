"""The formats in which floating-point numbers are sent, by the names that callers choose them by."""

from __future__ import annotations

import zlib
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs.arrays import BFLOAT16, dtype_of, is_torch, to_numpy
from p4reduce.codecs.float32 import Float32
from p4reduce.codecs.float_lanes import FloatLanes
from p4reduce.codecs.float_source import FORMS
from p4reduce.codecs.output import Output
from p4reduce.errors import InvalidTensorError

FixedWire = Literal["float32", "16", "8"]
Wire = FixedWire | Literal["auto"]
Rounding = Literal["nearest", "stochastic"]
WIRES: Final = ("float32", "16", "8", "auto")
"""32, 16 or 8 bits a number in fixed point; float32 or 16, as auto_wire.py decides."""
ROUNDINGS: Final = ("nearest", "stochastic")


def check_wire(wire: str | None, rounding: str = "nearest") -> None:
    """Raise InvalidTensorError for names of no format and no rounding."""
    if wire is not None and wire not in WIRES:
        raise InvalidTensorError(f'wire is {wire!r}; give "float32", "16", "8", "auto" or None')
    if rounding not in ROUNDINGS:
        raise InvalidTensorError(f'rounding is {rounding!r}; give "nearest" or "stochastic"')


def default_wire(dtype: np.dtype[Any]) -> FixedWire:
    """Return the format of a tensor of floats for which none is given."""
    return "float32" if dtype == np.float32 else "16"


def seed_of(rounding: str, rank: int, number: int) -> int:
    """Return the seed of a rank's rounding in its call `number`; 0 rounds to the nearest."""
    return 0 if rounding == "nearest" else zlib.crc32(f"{rank} {number}".encode()) or 1


class ResidueLanes(FloatLanes):
    """A tensor of floats in 16 or 8 bits, with error feedback: what one call does not send is sent in later ones.

    `residue`, float32, is added to the tensor, and what this rank has not sent of both takes its place once the sum is
    there. Of float16 and bfloat16 both together and the sum are float32; the result is rounded, which no residue keeps.
    """

    def __init__(
        self,
        values: Any,
        residue: Any,
        wire: str | None,
        *,
        mean: bool = False,
        name: str | None = None,
        out: Any = None,
        seed: int = 0,
        whole: Any = None,
        total: Any = None,
    ) -> None:
        """`whole`: memory, like the residue, for both together; `total`: for the sum of float16 and bfloat16. None: new
        memory.

        Raises InvalidTensorError for other types, another shape or kind of residue, and wire formats without loss.
        """
        check_wire(wire)
        if wire is None or wire not in ("16", "8"):
            raise InvalidTensorError(f'wire is {wire!r}, which leaves no residue; give "16" or "8", or no residue')
        dtype = dtype_of(values, name or "the tensor")
        if dtype not in FORMS or (dtype == BFLOAT16 and not is_torch(values)):
            raise InvalidTensorError(
                f"{name or 'the tensor'} is {values.dtype}; with error feedback convert it to float32"
            )
        if dtype_of(residue, "the residue") != np.float32:
            raise InvalidTensorError(f"the residue is {residue.dtype}; give one of float32")
        if type(residue) is not type(values) or tuple(residue.shape) != tuple(values.shape):
            raise InvalidTensorError("the residue has another shape than the tensor, or is of another kind")
        if whole is None:
            whole = values + residue
        else:
            whole[...] = values
            whole += residue
        self._residue = Output(residue, whole, to_numpy(whole))
        rest = np.empty(to_numpy(residue).size, np.float32) if self._residue.flat is None else self._residue.flat
        self._rounded: Output | None = None
        """Where the sum of float16 or bfloat16 belongs."""
        if dtype != np.float32:
            if out is None:
                out = values.detach().clone() if is_torch(values) else values.copy()
            self._rounded = Output(out, values, to_numpy(values))
            out = total
        super().__init__(whole, int(wire), mean=mean, name=name, out=out, seed=seed, keep_sent=False, rest=rest)

    def wrap(self, result: NDArray[Any]) -> Any:
        assert self._rest is not None
        self._residue.write(self._rest.reshape(self.values.shape))
        total = super().wrap(result)
        return total if self._rounded is None else self._rounded.write(to_numpy(total))


def float_segment(
    values: Any,
    wire: str | None,
    *,
    mean: bool = False,
    name: str | None = None,
    out: Any = None,
    seed: int = 0,
    keep_sent: bool = False,
    part: tuple[int, int] | None = None,
) -> Float32 | FloatLanes:
    """Return the segment of a tensor of floats. Without a `wire` float32 is sent as float32, other types in 16 bits.

    `part`: as in Float32.

    Raises InvalidTensorError for another format or type, and for "auto", which a communicator has to choose first.
    """
    check_wire(wire)
    if wire == "auto":
        raise InvalidTensorError('wire is "auto"; give what Communicator.choose_wire returns')
    if wire is None:
        wire = default_wire(dtype_of(values, name or "the tensor"))
    if wire == "float32":
        return Float32(values, mean=mean, name=name, out=out, part=part)
    return FloatLanes(values, int(wire), mean=mean, name=name, out=out, seed=seed, keep_sent=keep_sent, part=part)

"""One step of one parameter on one rank, as values: nothing in them changes the compressor.

    ParameterState  +  gradient   =  Step          the input of a step
    compress                      -> Compressed    what to send, and what to keep until the answer
    decompress                    -> Decompressed  the mean over the ranks, and the new state
    state.after(decompressed)     -> ParameterState

`exchange` commits the new states of a bucket's parameters at once, after everything that can fail. So a step that fails
changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from p4reduce.compressors.messages import Form, Message
from p4reduce.errors import InvalidTensorError
from p4reduce_contracts.jobs.lease import Lease

FLOAT_BITS = 32


@dataclass(frozen=True)
class ParameterState:
    """The state of one parameter on one rank between steps."""

    steps: int = 0
    """Gradients exchanged so far, dense ones included."""
    residue: torch.Tensor | None = None
    """The part of earlier gradients that was not sent, float32 [elements]; None before the first compressed step."""
    scale: float | None = None
    """The scale that all ranks agreed on for the next step, where the compressor has one."""
    selected: int | None = None
    """Elements that all ranks together sent in the last step, where the compressor counts them."""
    bits: tuple[int, int] | None = None
    """32 D and the bits sent, of all compressed steps so far."""
    velocity: torch.Tensor | None = None
    """The velocity of momentum, float32 [elements]; None before the first gradient that is not all zero."""

    def after(self, done: Decompressed) -> ParameterState:
        """Return the state that a compressed step leaves."""
        dense, sent = self.bits or (0, 0)
        return ParameterState(
            steps=self.steps + 1,
            residue=done.residue,
            scale=self.scale if done.scale is None else done.scale,
            selected=done.selected,
            bits=(dense + FLOAT_BITS * done.mean.numel(), sent + done.sent_bits),
            velocity=self.velocity,
        )

    def after_dense(self) -> ParameterState:
        """Return the state after a gradient that was sent dense."""
        return replace(self, steps=self.steps + 1)


@dataclass(frozen=True)
class Step:
    """The input of a step of one parameter."""

    key: str
    """The parameter's name."""
    gradient: torch.Tensor
    """This rank's gradient, float32 in the parameter's shape, finite, of any layout; with momentum the velocity. Where
    ranks share hosts a part of the parameter, for the whole host: [elements, 1, ...], with as many dimensions."""
    state: ParameterState
    """The state before the step."""
    form: Form
    """The form in which it is sent."""
    group: Lease
    """The ranks; where they share hosts, the hosts."""
    length: int = 0
    """Elements in a bin, chunk or block; 0 of a parameter that the policy sends dense."""
    begin: int = 0
    """The index in the parameter of the gradient's first element."""

    @cached_property
    def flat(self) -> torch.Tensor:
        """dW, the gradient as [elements]; not to be written to."""
        return self.gradient.detach().reshape(-1)

    def add_residue(self) -> torch.Tensor:
        """Return G = R + dW, a new tensor [elements].

        Raises InvalidTensorError when the two differ in length, or a sum is no longer finite.
        """
        self.check_residue()
        if self.state.residue is None:
            return self.flat.clone()
        total = self.state.residue + self.flat
        if not is_finite(total):
            raise self.not_finite()
        return total

    def check_residue(self) -> None:
        """Raise InvalidTensorError when gradient and residue differ in length."""
        residue = self.state.residue
        if residue is not None and residue.numel() != self.flat.numel():
            raise InvalidTensorError(
                f"gradient of {self.key!r} has {self.flat.numel()} elements, its residue {residue.numel()}: "
                "load the state of the same model"
            )

    def not_finite(self) -> InvalidTensorError:
        """Return the error of a step whose G = R + dW is not all finite."""
        what = "gradient" if self.state.residue is None else "residue"
        return InvalidTensorError(f"the {what} of {self.key!r} overflows float32: lower the learning rate or clip")


@dataclass(frozen=True)
class Compressed:
    """A rank's compressed gradient: the message, and what to keep until the answer."""

    message: Message
    """Stream, Integers, Values or Support, by the form."""
    kept: torch.Tensor
    """The tensor from which `decompress` makes the residue, float32 [elements]: often that residue itself."""
    sent_bits: int = 0
    """Bits of this rank's choice, as the method's paper counts them, where they are known after `compress`."""
    metadata: tuple[float, ...] = ()
    """A few numbers of this rank that all ranks get with the answer; as many on every rank."""
    sent: torch.Tensor | None = None
    """The elements of which something is sent, int64; None: those whose residue is not all of G."""


@dataclass(frozen=True)
class Answer:
    """The result of all ranks' messages."""

    result: Any
    """All ranks' coordinates (RanksCoordinates) for a Stream, their int32 sums [elements] for Integers, a Summed (mean,
    and what this rank sent) for Values, an AtSupport (indices, mean, and what this rank sent) for a Support."""
    metadata: NDArray[np.float32]
    """[world_size, metadata]: the metadata of every rank."""


@dataclass(frozen=True)
class Decompressed:
    """The result of a step."""

    mean: torch.Tensor
    """The mean over all ranks, float32 [elements], the same bits on each."""
    residue: torch.Tensor
    """The part of the gradient that is left for later steps, float32 [elements]."""
    sent_bits: int
    """Bits of this rank's choice, as the method's paper counts them, for the effective compression rate."""
    scale: float | None = None
    """The scale that all ranks agreed on for the next step; None: as before."""
    selected: int | None = None
    """Elements that all ranks together sent, for the choice of the next form; None: not counted."""


def is_finite(tensor: torch.Tensor) -> bool:
    """Return whether no element is a NaN or an infinity; one pass, without a tensor of flags."""
    if not tensor.numel():
        return True
    least, most = torch.aminmax(tensor.detach())
    return math.isfinite(least.item()) and math.isfinite(most.item())

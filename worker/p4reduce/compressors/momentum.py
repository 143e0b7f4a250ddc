"""Momentum correction: each rank compresses the moving average of its own gradients, its velocity.

Source: Lin et al., "Deep Gradient Compression", ICLR 2018, sections 3.2 (momentum correction) and 3.3 (momentum factor
masking); the text was not at hand (unverified). For one parameter of one rank, with momentum m, velocity v and gradient
g (all element-wise):

    v <- m v + (1 - m) g          as Adam's first moment, without bias correction
    compress v in place of g; what a dense parameter sends is v too
    v <- 0                        where something was sent of a compressed parameter

The optimizer must have no first moment of its own: AdamW(betas=(0.0, beta2)), SGD(momentum=0). The paper's v is that of
SGD with momentum, m v + g; the one here is 1 - m times as large, so SGD needs a learning rate 1 / (1 - m) times as
large. Every all-reduce is a step: of gradients that are accumulated over several backward passes, all-reduce the last
(`no_sync` of DistributedDataParallel).

A rank whose gradient is all zero (a layer that was not used) compresses zeros and keeps v, as an optimizer keeps the
moment of a parameter without a gradient.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from p4reduce.compressors.step import Decompressed, ParameterState, Step, is_finite
from p4reduce.errors import InvalidTensorError


def next_velocity(key: str, state: ParameterState, gradient: torch.Tensor, momentum: float) -> torch.Tensor:
    """Return the velocity after a gradient, a new tensor in its shape, float32.

    Raises InvalidTensorError when gradient and velocity differ in length, or the velocity is no longer finite.
    """
    flat = gradient.detach().reshape(-1)
    before = torch.zeros_like(flat) if state.velocity is None else state.velocity
    if before.numel() != flat.numel():
        raise InvalidTensorError(
            f"gradient of {key!r} has {flat.numel()} elements, its velocity {before.numel()}: "
            "load the state of the same model"
        )
    velocity = before.lerp(flat, 1 - momentum)
    if not is_finite(velocity):
        raise InvalidTensorError(f"the velocity of {key!r} overflows float32: lower the learning rate or clip")
    return velocity.view(gradient.shape)


def forget_sent(
    velocities: Mapping[str, torch.Tensor], steps: Mapping[str, Step], done: Mapping[str, Decompressed]
) -> None:
    """Set velocities to 0, in place, where something was sent: where the residue is not all of G = R + v."""
    for key in velocities.keys() & done.keys():
        velocities[key].view(-1)[done[key].residue != steps[key].add_residue()] = 0

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
from dataclasses import replace

import numpy as np
import torch

from p4reduce.compressors.interface import Compressor
from p4reduce.compressors.selection import begins_of, empty, flat
from p4reduce.compressors.step import Compressed, Decompressed, ParameterState, Step
from p4reduce.errors import InvalidTensorError


def next_velocities(compressor: Compressor, gradients: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the velocities after these gradients, float32, in their shapes; not of those that are all zero.

    They are parts of one new tensor. Raises InvalidTensorError when gradient and velocity differ in length, or a
    velocity is no longer finite.
    """
    import p4reduce.compressors.kernels as kernels

    if not gradients:
        return {}
    keys, before = [*gradients], [compressor.state_of(key).velocity for key in gradients]
    for (key, tensor), velocity in zip(gradients.items(), before, strict=True):
        if velocity is not None and velocity.numel() != tensor.numel():
            raise InvalidTensorError(
                f"gradient of {key!r} has {tensor.numel()} elements, its velocity {velocity.numel()}: "
                "load the state of the same model"
            )
    given = flat([tensor.detach().reshape(-1) for tensor in gradients.values()])
    olds = flat([velocity for velocity in before if velocity is not None])
    old_begin = np.full(len(before), -1)
    old_begin[[velocity is not None for velocity in before]] = olds.begin
    begin = begins_of([tensor.numel() for tensor in gradients.values()])
    moved, used = empty(int(begin[-1])), np.empty(len(before), np.bool_)
    weight = np.float32(1 - compressor.momentum)
    bad = kernels.move_all(begin, old_begin, olds.numbers, given.begin, given.numbers, weight, moved.numpy(), used)
    if bad >= 0:
        raise InvalidTensorError(f"the velocity of {keys[bad]!r} overflows float32: lower the learning rate or clip")
    parts = torch.split(moved, np.diff(begin).tolist())
    return {key: part.view(gradients[key].shape) for key, part, its in zip(keys, parts, used, strict=True) if its}


def forget_sent(
    velocities: Mapping[str, torch.Tensor],
    steps: Mapping[str, Step],
    compressed: Mapping[str, Compressed],
    done: Mapping[str, Decompressed],
) -> None:
    """Set the velocities of these steps to 0, in place, where something was sent."""
    for key in velocities.keys() & done.keys():
        sent = compressed[key].sent
        velocities[key].view(-1)[done[key].residue != steps[key].add_residue() if sent is None else sent] = 0


def with_velocity(state: ParameterState, moved: torch.Tensor | None) -> ParameterState:
    """Return the state with the velocity `moved`; else with a copy of its own if that is part of a larger tensor."""
    kept = state.velocity
    if moved is not None:
        return replace(state, velocity=moved.view(-1))
    if kept is not None and kept.untyped_storage().nbytes() > kept.nbytes:  # it was a part of one tensor of a bucket
        return replace(state, velocity=kept.clone())
    return state

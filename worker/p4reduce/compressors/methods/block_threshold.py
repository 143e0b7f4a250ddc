"""BlockThreshold: the blocks whose norm reaches a threshold (OmniReduce, SIGCOMM 2021)."""

from __future__ import annotations

import torch

from p4reduce.compressors.block_sparsifier import BlockSparsifier
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.registry import register
from p4reduce.compressors.step import Step


@register("block-threshold")
class BlockThreshold(BlockSparsifier):
    """However many blocks have an L2 norm of at least `threshold`."""

    def __init__(
        self, policy: Policy | None = None, *, threshold: float, value_bits: int = 32, warmup_steps: int = 0
    ) -> None:
        """`threshold`: an L2 norm of gradient and residue together, more than 0."""
        if not threshold > 0:
            raise ValueError(f"threshold is {threshold:g}; give a norm above 0")
        super().__init__(policy, value_bits=value_bits, warmup_steps=warmup_steps)
        self.threshold = threshold

    def choose(self, step: Step, total: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        chosen: torch.Tensor = total.norm(dim=1) >= self.threshold
        return chosen

"""BlockTopK: each rank sends its blocks of the largest norm (OmniReduce, SIGCOMM 2021)."""

from __future__ import annotations

import torch

from p4reduce.compressors.block_sparsifier import BlockSparsifier, check_ratio, share_of
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.registry import register
from p4reduce.compressors.step import Step


@register("block-top-k")
class BlockTopK(BlockSparsifier):
    """A fixed share of every parameter's blocks."""

    def __init__(
        self, policy: Policy | None = None, *, ratio: float = 0.01, value_bits: int = 32, warmup_steps: int = 0
    ) -> None:
        """`ratio`: the share of a parameter's blocks to send, at least one block."""
        super().__init__(policy, value_bits=value_bits, warmup_steps=warmup_steps)
        self.ratio = check_ratio(ratio)

    def choose(self, step: Step, total: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        chosen = torch.zeros(len(total), dtype=torch.bool)
        chosen[total.norm(dim=1).topk(share_of(self.ratio, len(total))).indices] = True
        return chosen

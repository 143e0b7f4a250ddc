"""BlockTopKRatio: the blocks whose gradient is largest in relation to their weights (OmniReduce, SIGCOMM 2021).

That the ratio is |gradient block| / |parameter block| could not be read in the paper itself (unverified).
"""

from __future__ import annotations

import torch

from p4reduce.compressors.bins import by_bin
from p4reduce.compressors.block_sparsifier import BlockSparsifier, check_ratio, share_of
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.registry import register
from p4reduce.compressors.step import Step
from p4reduce.group import Group

TINY = 1e-12
"""Added to a block's weights' norm, so that blocks of zeros have a ratio."""


@register("block-top-k-ratio")
class BlockTopKRatio(BlockSparsifier):
    """A fixed share of every parameter's blocks, by norm of the gradient over norm of the weights."""

    def __init__(
        self, policy: Policy | None = None, *, ratio: float = 0.01, value_bits: int = 32, warmup_steps: int = 0
    ) -> None:
        """`ratio`: the share of a parameter's blocks to send, at least one block."""
        super().__init__(policy, value_bits=value_bits, warmup_steps=warmup_steps)
        self.ratio = check_ratio(ratio)
        self._weights: dict[str, torch.Tensor] = {}

    def bind(self, module: torch.nn.Module) -> None:
        super().bind(module)
        self._weights = dict(module.named_parameters())

    def check(self, group: Group) -> None:
        super().check(group)
        if not self._weights:
            raise ValueError(f"{self.name} compares gradients with weights: give DDPState module=model")

    def choose(self, step: Step, total: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        if step.key not in self._weights:
            raise ValueError(f"{self.name} needs the weights of {step.key!r}: give the module")
        weights = self._weights[step.key].detach().reshape(-1).to("cpu", torch.float32)
        norms = by_bin(weights, total.shape[1]).norm(dim=1)
        ratios = total.norm(dim=1) / (norms + TINY)
        chosen = torch.zeros(len(total), dtype=torch.bool)
        chosen[ratios.topk(share_of(self.ratio, len(total))).indices] = True
        return chosen

"""BlockAdaComp: AdaComp's test on the norms of blocks, inside bins of several blocks (ours).

With residue R and gradient dW, a block is sent when  |R + f dW| >= max |R + dW|  over the blocks of its bin (L2 norms
of blocks). AdaComp's own f = 2 selects nearly every block: norms of blocks are too much alike. f = 1.1 is the default.
"""

from __future__ import annotations

import torch

from p4reduce.compressors.block_sparsifier import BlockSparsifier
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.registry import register
from p4reduce.compressors.step import Step


@register("block-adacomp")
class BlockAdaComp(BlockSparsifier):
    """As many blocks of each bin as the test lets through."""

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        bin_blocks: int = 20,
        factor: float = 1.1,
        value_bits: int = 8,
        warmup_steps: int = 0,
    ) -> None:
        """`bin_blocks`: blocks in a bin; `factor`: f, more than 1."""
        if bin_blocks < 1:
            raise ValueError(f"bin_blocks is {bin_blocks}; give 1 or more")
        if not factor > 1:
            raise ValueError(f"factor is {factor:g}; give more than 1")
        super().__init__(policy, value_bits=value_bits, warmup_steps=warmup_steps)
        self.bin_blocks = bin_blocks
        self.factor = factor

    def choose(self, step: Step, total: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        norms = total.norm(dim=1)
        ahead = (total + (self.factor - 1) * gradient).norm(dim=1)
        missing = -len(norms) % self.bin_blocks
        bins = torch.nn.functional.pad(norms, (0, missing)).view(-1, self.bin_blocks)
        most = bins.amax(dim=1).repeat_interleave(self.bin_blocks)[: len(norms)]
        chosen: torch.Tensor = (ahead >= most) & (most > 0)
        return chosen

"""BlockRandomK: the same random blocks on all ranks (OmniReduce, SIGCOMM 2021).

All ranks draw from one seed, so the union of their blocks is no larger than one rank's choice. Whether the paper's
ranks draw alike could not be read (unverified).
"""

from __future__ import annotations

import zlib

import torch

from p4reduce.compressors.block_sparsifier import BlockSparsifier, check_ratio, share_of
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.registry import register
from p4reduce.compressors.step import Step


@register("block-random-k")
class BlockRandomK(BlockSparsifier):
    """A fixed share of every parameter's blocks, drawn anew each step."""

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        ratio: float = 0.01,
        seed: int = 0,
        value_bits: int = 32,
        warmup_steps: int = 0,
    ) -> None:
        """`ratio`: the share of a parameter's blocks to send, at least one; `seed`: the same on all ranks."""
        super().__init__(policy, value_bits=value_bits, warmup_steps=warmup_steps)
        self.ratio = check_ratio(ratio)
        self.seed = seed

    def choose(self, step: Step, total: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        draw = zlib.crc32(f"{self.seed}/{step.key}/{step.state.steps}".encode())
        order = torch.randperm(len(total), generator=torch.Generator().manual_seed(draw))
        chosen = torch.zeros(len(total), dtype=torch.bool)
        chosen[order[: share_of(self.ratio, len(total))]] = True
        return chosen

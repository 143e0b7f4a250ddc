"""OmniReduce: whole blocks are sent, chosen in one of four ways.

Source: Fei et al., "Efficient Sparse Collective Communication and its application to Accelerate Distributed Deep
Learning" (OmniReduce), SIGCOMM 2021. A block's weight is its L2 norm, of gradient and residue together.

top-k        a fixed share of every parameter's blocks: those of the largest norm
top-k-ratio  the same share, by norm over the norm of the block's weights; that the ratio is this one could not be read
             in the paper (unverified)
random-k     the same share, drawn anew each step, the same blocks on all ranks, so that their union is no larger than
             one rank's choice; whether the paper's ranks draw alike could not be read (unverified)
threshold    however many blocks have at least a norm
"""

from __future__ import annotations

import math
import zlib
from typing import Final, Literal, get_args

import torch

from p4reduce.compressors.block_sparsifier import BlockSparsifier, by_bin
from p4reduce.compressors.interface import register
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.settings import check_whole, is_number
from p4reduce.compressors.step import Step
from p4reduce_contracts.jobs.lease import Lease

Selection = Literal["top-k", "top-k-ratio", "random-k", "threshold"]
TINY: Final = 1e-12
"""A small number that is added to the norm of a block's weights, so that blocks of zeros have a ratio."""


@register("omnireduce")
class OmniReduce(BlockSparsifier):
    """Blocks chosen by their norm, by the ratio of norms, or at random."""

    def __init__(
        self,
        select: Selection = "top-k",
        policy: Policy | None = None,
        *,
        ratio: float = 0.01,
        threshold: float | None = None,
        seed: int = 0,
        value_bits: int = 32,
        warmup_steps: int = 0,
    ) -> None:
        """`ratio`: the share of a parameter's blocks to send, at least one block; for all but "threshold".
        `threshold`: an L2 norm above 0, for "threshold". `seed`: the same on all ranks, for "random-k".
        """
        if select not in get_args(Selection):
            raise ValueError(f"select is {select!r}; give {', '.join(get_args(Selection))}")
        if not (is_number(ratio) and 0 < ratio <= 1):
            raise ValueError(f"ratio is {ratio!r}; give the share of blocks to send, more than 0 and at most 1")
        given = threshold is not None or select == "threshold"
        if given and not (is_number(threshold) and 0 < threshold < math.inf):
            raise ValueError(f"threshold is {threshold!r}; give a norm above 0")
        check_whole("seed", seed, 0)
        super().__init__(policy, value_bits=value_bits, warmup_steps=warmup_steps)
        self.select, self.ratio, self.seed = select, ratio, seed
        self.threshold = None if threshold is None else float(threshold)
        self._weights: dict[str, torch.Tensor] = {}

    def bind(self, module: torch.nn.Module) -> None:
        super().bind(module)
        if self.select == "top-k-ratio":
            self._weights = dict(module.named_parameters())

    def check(self, group: Lease) -> None:
        super().check(group)
        if self.select == "top-k-ratio" and not self._weights:
            raise ValueError("top-k-ratio compares gradients with weights: give DDPState module=model")

    def choose(self, step: Step, total: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        norms = total.norm(dim=1)
        chosen: torch.Tensor = norms >= (self.threshold or 0.0)
        if self.select == "threshold":
            return chosen
        chosen = torch.zeros(len(total), dtype=torch.bool)
        chosen[self._ranked(step, norms, total.shape[1])[: max(1, round(self.ratio * len(total)))]] = True
        return chosen

    def _ranked(self, step: Step, norms: torch.Tensor, length: int) -> torch.Tensor:
        """Return the blocks' indices, those to send first."""
        if self.select == "random-k":
            draw = zlib.crc32(f"{self.seed}/{step.key}/{step.state.steps}".encode())
            return torch.randperm(len(norms), generator=torch.Generator().manual_seed(draw))
        if self.select == "top-k-ratio":
            if step.key not in self._weights:
                raise ValueError(f"top-k-ratio needs the weights of {step.key!r}: give the module")
            weights = self._weights[step.key].detach().reshape(-1)[step.begin :][: step.flat.numel()]
            weights = weights.to("cpu", torch.float32)
            norms = norms / (by_bin(weights, length).norm(dim=1) + TINY)
        return norms.argsort(descending=True, stable=True)

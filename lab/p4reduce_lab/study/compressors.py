"""The compressors of the variants, and those of the study only: Rounded and BlockAdaComp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import ClassVar, Final

import torch

from p4reduce.compressors import (
    Answer,
    BlockSparsifier,
    Compressed,
    Compressor,
    Decompressed,
    Policy,
    Quantize,
    Step,
    by_name,
)
from p4reduce_lab.study.grid import Task, Variant


class BlockAdaComp(BlockSparsifier):
    """AdaComp's test on the L2 norms of blocks: those with |R + 1.1 dW| >= max |R + dW| over 20 blocks."""

    name: ClassVar[str] = "block-adacomp"

    def __init__(self) -> None:
        super().__init__(value_bits=8)

    def choose(self, step: Step, total: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        norms = total.norm(dim=1)
        bins = torch.nn.functional.pad(norms, (0, -len(norms) % 20)).view(-1, 20)
        most = bins.amax(dim=1).repeat_interleave(20)[: len(norms)]
        chosen: torch.Tensor = ((total + 0.1 * gradient).norm(dim=1) >= most) & (most > 0)
        return chosen


class Rounded(Quantize):
    """Quantize without error feedback: what rounding loses is dropped."""

    name: ClassVar[str] = "rounded"

    def decompress_one(self, step: Step, compressed: Compressed, answer: Answer) -> Decompressed:
        done = super().decompress_one(step, compressed, answer)
        return replace(done, residue=torch.zeros_like(done.residue))


_OWN: Final[dict[str, Callable[..., Compressor]]] = {BlockAdaComp.name: BlockAdaComp, Rounded.name: Rounded}


def make_compressor(variant: Variant, task: Task) -> Compressor:
    """Make a rank's compressor."""
    options = dict(variant.options)
    if variant.lengths:
        options["policy"] = Policy(**variant.lengths)
    if options.get("select") == "threshold":
        options["threshold"] = task.block_threshold
    make = _OWN.get(variant.compressor) or partial(by_name, variant.compressor)
    return make(**options)

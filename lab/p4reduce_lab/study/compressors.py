"""The compressors of the variants, and those of the study only: one bit an element, plain top-k, Rounded, BlockAdaComp.

AdaComp's authors compare theirs with the first two. A switch cannot add their messages more cheaply than whole floats,
so their sums are sent as floats, and only their own encodings' bits are counted.

OneBit follows Seide et al., "1-bit stochastic gradient descent and its application to data-parallel distributed
training of speech DNNs", Interspeech 2014, as others describe it (unverified): every element becomes one bit, above
zero or not; the two numbers that the bits stand for are the means of what was above and below, a pair for each column
of a weight matrix, here one output unit's or filter's weights; the sum of all ranks is made bits once more before it
goes back; and both times the error is added to the next gradient. That paper's AdaGrad is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, Final

import torch

from p4reduce.compressors import (
    AdaComp,
    Answer,
    BlockSparsifier,
    Compressed,
    Compressor,
    Decompressed,
    Form,
    NoCompression,
    OmniReduce,
    PerParameter,
    Policy,
    Quantize,
    ScaleCom,
    Step,
    Values,
)
from p4reduce.compressors.step import FLOAT_BITS
from p4reduce_lab.study.grid import Task, Variant


class OneBit(PerParameter):
    """1-bit SGD. With `feedback`, a parameter's residue holds this rank's error, then the error of the mean."""

    name: ClassVar[str] = "one-bit"
    forms: ClassVar[tuple[Form, ...]] = (Form.SUM,)

    def __init__(self, *, feedback: bool = True, warmup_steps: int = 0) -> None:
        """`feedback`: whether errors are added to the next gradient."""
        super().__init__(Policy(), Form.SUM, warmup_steps=warmup_steps)
        self.feedback = feedback

    def compress_one(self, step: Step) -> Compressed:
        own, of_mean = _two_errors(step)
        total = own + step.flat
        bits = to_one_bit(total, len(step.gradient))
        return Compressed(Values(bits), torch.stack([total, of_mean]), _bits_of(step.gradient))

    def decompress_one(self, step: Step, compressed: Compressed, answer: Answer) -> Decompressed:
        total, of_mean = compressed.kept
        mean, sent = answer.result
        again = of_mean + mean
        result = to_one_bit(again, len(step.gradient))
        errors = torch.cat([total - sent, again - result])
        return Decompressed(result, errors if self.feedback else torch.zeros_like(errors), compressed.sent_bits)


def _two_errors(step: Step) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what this rank's bits left out so far, and what the mean's did: float32 [elements] each."""
    if step.state.residue is None:
        return torch.zeros_like(step.flat), torch.zeros_like(step.flat)
    own, of_mean = step.state.residue.view(2, -1)
    return own, of_mean


def to_one_bit(values: torch.Tensor, units: int) -> torch.Tensor:
    """Replace each of [elements] by the mean of those of its row that are, like it, above zero or not."""
    rows = values.view(units, -1)
    above = rows > 0
    high = (rows * above).sum(1, keepdim=True) / above.sum(1, keepdim=True).clamp(min=1)
    low = (rows * ~above).sum(1, keepdim=True) / (~above).sum(1, keepdim=True).clamp(min=1)
    return torch.where(above, high, low).reshape(-1)


def _bits_of(gradient: torch.Tensor) -> int:
    """Return what a rank sends: a bit an element, two floats for each unit."""
    return gradient.numel() + 2 * FLOAT_BITS * len(gradient)


class TopK(PerParameter):
    """The same share of every parameter's elements, the largest. Without `feedback`, what is not sent is dropped."""

    name: ClassVar[str] = "top-k"
    forms: ClassVar[tuple[Form, ...]] = (Form.SUM,)

    def __init__(self, *, ratio: float, feedback: bool, warmup_steps: int = 0) -> None:
        """`ratio`: the share of elements to send, at least one element."""
        super().__init__(Policy(), Form.SUM, warmup_steps=warmup_steps)
        self.ratio = ratio
        self.feedback = feedback

    def compress_one(self, step: Step) -> Compressed:
        total = step.add_residue()
        indices = total.abs().topk(max(1, round(self.ratio * total.numel()))).indices
        values = torch.zeros_like(total)
        values[indices] = total[indices]
        return Compressed(Values(values), total, 2 * FLOAT_BITS * len(indices))  # a place and a float each

    def decompress_one(self, step: Step, compressed: Compressed, answer: Answer) -> Decompressed:
        mean, sent = answer.result
        residue = compressed.kept - sent if self.feedback else torch.zeros_like(sent)
        return Decompressed(mean, residue, compressed.sent_bits)


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


_MAKERS: Final[dict[str, Callable[..., Compressor]]] = {
    "": NoCompression,
    "adacomp": AdaComp,
    "scalecom": ScaleCom,
    "block-adacomp": BlockAdaComp,
    "omnireduce": OmniReduce,
    "one-bit": OneBit,
    "top-k": TopK,
    "quantize": Quantize,
    "rounded": Rounded,
}


def make_compressor(variant: Variant, task: Task) -> Compressor:
    """Make a rank's compressor."""
    options = dict(variant.options)
    if variant.lengths:
        options["policy"] = Policy(**variant.lengths)
    if options.get("select") == "threshold":
        options["threshold"] = task.block_threshold
    return _MAKERS[variant.compressor](**options)

"""Quantize: whole gradients in 16 or 8 bits a number, with error feedback.

What rounding loses of a gradient is added to the next one: error feedback, as of Seide et al., "1-bit stochastic
gradient descent", Interspeech 2014 (unverified). The formats are in codecs/formats.py.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from p4reduce.codecs.formats import levels
from p4reduce.compressors.interface import PerParameter, register
from p4reduce.compressors.messages import Form, Values
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.settings import check_choice
from p4reduce.compressors.step import Answer, Compressed, Decompressed, Step
from p4reduce_contracts.jobs.lease import Lease


@register("quantize")
class Quantize(PerParameter):
    """Every parameter in `bits` bits a number."""

    forms: ClassVar[tuple[Form, ...]] = (Form.SUM,)

    def __init__(self, bits: int = 8, *, warmup_steps: int = 0) -> None:
        """`bits`: 16 or 8. 8 bits hold sums of at most 64 ranks."""
        check_choice("bits", bits, (16, 8))
        super().__init__(Policy(), Form.SUM, warmup_steps=warmup_steps)
        self.bits = bits

    def is_dense(self, key: str, shape: torch.Size) -> bool:
        return self.state_of(key).steps < self.warmup_steps  # biases and norm layers are rounded too

    def check(self, group: Lease) -> None:
        levels(self.bits, group.world_size)

    def compress_one(self, step: Step) -> Compressed:
        step.check_residue()
        residue = step.state.residue
        total = step.flat if residue is None else step.flat + residue  # that it is finite is seen when it is encoded
        return Compressed(Values(total, self.bits), kept=total, sent_bits=self.bits * total.numel())

    def decompress_one(self, step: Step, compressed: Compressed, answer: Answer) -> Decompressed:
        mean, sent = answer.result
        residue = torch.sub(compressed.kept, sent, out=sent)  # in memory that was used just now
        return Decompressed(mean, residue, compressed.sent_bits)

"""Block sparsifiers: whole blocks of consecutive elements are sent or kept, with error feedback.

What is not sent is added to the next gradient. The values are sent as float32 (`value_bits` 32), or in lanes of 16 or 8
bits whose rounding goes into the residue too.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch

from p4reduce.codecs.formats import levels
from p4reduce.compressors.interface import PerParameter
from p4reduce.compressors.messages import Form, Values
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.settings import check_choice
from p4reduce.compressors.step import Answer, Compressed, Decompressed, Step
from p4reduce_contracts.jobs.lease import Lease


class BlockSparsifier(PerParameter):
    """A compressor that sends some blocks uncompressed; a subclass selects them."""

    forms: ClassVar[tuple[Form, ...]] = (Form.SUM,)

    def __init__(self, policy: Policy | None = None, *, value_bits: int = 32, warmup_steps: int = 0) -> None:
        """`policy` gives the elements in a block (default 256); `value_bits` is 8, 16 or 32."""
        check_choice("value_bits", value_bits, (8, 16, 32))
        super().__init__(self.default_policy() if policy is None else policy, Form.SUM, warmup_steps=warmup_steps)
        self.value_bits = value_bits

    @classmethod
    def default_policy(cls) -> Policy:
        return Policy(conv=256, linear=256, recurrent=256, embedding=256)

    @abstractmethod
    def choose(self, step: Step, total: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """Choose the blocks to send, bool [blocks], from G = R + dW and dW, both [blocks, length]."""

    def check(self, group: Lease) -> None:
        if self.value_bits < 32:
            levels(self.value_bits, group.world_size)

    def compress_one(self, step: Step) -> Compressed:
        length, total = step.length, step.add_residue()
        values, sent = torch.zeros_like(total), 0
        if bool(step.flat.any()):
            blocks = by_bin(total, length)
            chosen = self.choose(step, blocks, by_bin(step.flat, length))
            values = (blocks * chosen[:, None]).view(-1)[: total.numel()]
            sent = int(chosen.sum()) * length - int(chosen[-1]) * (blocks.numel() - total.numel())
        return Compressed(Values(values, self.value_bits), kept=total, sent_bits=sent * self.value_bits)

    def decompress_one(self, step: Step, compressed: Compressed, answer: Answer) -> Decompressed:
        mean, sent = answer.result
        return Decompressed(mean, compressed.kept - sent, compressed.sent_bits)


def by_bin(flat: torch.Tensor, length: int) -> torch.Tensor:
    """Return [elements] as [bins, length], with zeros after the last element."""
    bins = -(-flat.numel() // length)
    missing = bins * length - flat.numel()
    return (torch.nn.functional.pad(flat, (0, missing)) if missing else flat).view(bins, length)

"""Block sparsifiers: whole blocks of consecutive elements are sent or kept, with error feedback.

Source: Fei et al., "Efficient Sparse Collective Communication and its application to Accelerate Distributed Deep
Learning" (OmniReduce), SIGCOMM 2021. A block's weight is its L2 norm. What is not sent is added to the next gradient.
The values travel as float32 (`value_bits` 32), or in lanes of 16 or 8 bits whose rounding goes into the residue too.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import torch

from p4reduce.codecs.float_lanes import Summed, levels
from p4reduce.compressors.bins import by_bin, flat_again
from p4reduce.compressors.interface import Compressor, Form, Message, Values
from p4reduce.compressors.policy import Policy
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.lanes import lanes_per_word

BLOCK_ELEMENTS = 256


def blocks_policy(elements: int = BLOCK_ELEMENTS) -> Policy:
    """Blocks of one length in every kind of layer."""
    return Policy(conv=elements, linear=elements, recurrent=elements, embedding=elements)


def share_of(ratio: float, blocks: int) -> int:
    """How many of `blocks` a ratio stands for: at least 1."""
    return min(blocks, max(1, round(ratio * blocks)))


def check_ratio(ratio: float) -> float:
    """ValueError unless 0 < ratio <= 1."""
    if not 0 < ratio <= 1:
        raise ValueError(f"ratio is {ratio:g}; give the share of blocks to send, more than 0 and at most 1")
    return ratio


class BlockSparsifier(Compressor):
    """A compressor that sends some blocks whole. A subclass says which."""

    forms: ClassVar[tuple[Form, ...]] = (Form.SUM,)

    def __init__(self, policy: Policy | None = None, *, value_bits: int = 32, warmup_steps: int = 0) -> None:
        """`policy` gives the elements in a block (default 256); `value_bits` is 8, 16 or 32."""
        if value_bits not in (8, 16, 32):
            raise ValueError(f"value_bits is {value_bits}; give 8, 16 or 32")
        super().__init__(policy or self.default_policy(), Form.SUM, warmup_steps=warmup_steps)
        self.value_bits = value_bits

    @classmethod
    def default_policy(cls) -> Policy:
        return blocks_policy()

    @abstractmethod
    def choose(self, key: str, total: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        """The blocks to send, bool [blocks], from G = R + dW and dW, both [blocks, length]."""

    def check(self, lease: Lease) -> None:
        if self.value_bits < 32:
            levels(self.value_bits, lease.world_size)

    def compress(self, key: str, gradient: torch.Tensor, form: Form, lease: Lease) -> Message:
        length = self.policy.length(key, gradient.shape)
        if length is None:
            raise ValueError(f"the policy sends {key!r} dense: it is not compressed")
        step = gradient.detach().reshape(-1)
        total = self._residues.added_to(key, step)
        self.keep_back(key, total)
        values, sent = torch.zeros_like(total), 0
        if bool(step.any()):
            blocks = by_bin(total, length)
            chosen = self.choose(key, blocks, by_bin(step, length))
            values = flat_again(blocks * chosen[:, None], total.numel())
            sent = int(chosen.sum()) * length - int(chosen[-1]) * (blocks.numel() - total.numel())
        self.counted(key, total.numel(), sent * self.value_bits)
        return Values(values, self.value_bits)

    def decompress(self, key: str, message: Message, answer: Any, lease: Lease) -> torch.Tensor:
        assert isinstance(answer, Summed)
        self.keep_back(key, self._kept_back[key] - answer.sent)
        per_block = lease.block_words * lanes_per_word(self.value_bits)
        mean: torch.Tensor = answer.total
        self.note(key, [float(by_bin(mean, per_block).any(dim=1).sum()) if mean.numel() else 0.0])
        return mean

    def expected_bytes(self, key: str, shape: torch.Size, form: Form, lease: Lease) -> float | None:
        counts = self._counts.get(key)
        return None if counts is None else 4 * lease.block_words * counts[0]

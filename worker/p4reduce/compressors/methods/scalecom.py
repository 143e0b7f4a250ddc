"""ScaleCom: the leader's largest elements, chunk by chunk, and a low-pass filter in the residue.

Source: Chen et al., "ScaleCom: Scalable Sparsified Gradient Compression for Communication-Efficient Distributed
Training", NeurIPS 2020 (CLT-k: cyclic local top-k). For one parameter, with memory m and gradient g of rank i:

    p_i = m_i + g_i
    leader = t mod N;  I = the largest |p_leader| of each chunk
    sent_i = p_i on I, 0 elsewhere
    m_i <- (1 - b) m_i + b (p_i - sent_i)

b = 1 is plain error feedback; b about 0.1 is for large batches or high learning rates. How many elements a chunk
gives (here 1), and which steps and layers stay dense, could not be read in the paper (unverified).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch

from p4reduce.compressors.element_sparsifier import ElementSparsifier
from p4reduce.compressors.interface import register
from p4reduce.compressors.messages import Form
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.selection import Selection, select_by_bin
from p4reduce.compressors.settings import is_number
from p4reduce.compressors.step import Step


@register("scalecom")
class ScaleCom(ElementSparsifier):
    """ScaleCom's state: the memory of every parameter."""

    forms: ClassVar[tuple[Form, ...]] = (Form.SHARED,)

    def __init__(
        self, policy: Policy | None = None, *, b: float = 0.1, value_bits: int = 16, warmup_steps: int = 0
    ) -> None:
        """`policy` gives the chunk (default: 100 elements of any layer). Raises ValueError unless 0 < b <= 1."""
        if not (is_number(b) and 0 < b <= 1):
            raise ValueError(f"b is {b!r}; give more than 0, at most 1")
        super().__init__(policy, Form.SHARED, value_bits=value_bits, warmup_steps=warmup_steps)
        self.b = b

    @classmethod
    def default_policy(cls) -> Policy:
        return Policy(conv=100, linear=100, recurrent=100, embedding=100)

    def select(self, steps: Sequence[Step]) -> Selection:
        """Choose the largest |p| of each chunk, the first among equals."""
        return select_by_bin(steps, largest_only=True)

    def next_residue(self, total: torch.Tensor, gradient: torch.Tensor, sent: torch.Tensor) -> torch.Tensor:
        return (gradient - sent).mul_(self.b).add_(total - gradient)

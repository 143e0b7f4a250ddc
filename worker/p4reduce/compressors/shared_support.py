"""The form shared: each step one rank, the leader, selects elements for all, and all ranks' values there are summed.

The leader of a parameter's step t is rank t mod N. Its choice is sent once, as coordinates; the values of every rank
at the chosen elements follow in a second collective, in 8, 16 or 32 bits each. What a rank does not send stays in its
residue. So the bytes down do not grow with the number of ranks.

A rank whose gradient is all zero still sends its values when another rank leads, and chooses nothing when it leads.
"""

from __future__ import annotations

import numpy as np
import torch

from p4reduce.codecs import coordinates
from p4reduce.codecs.coordinates import Coordinates, Part
from p4reduce.codecs.formats import levels
from p4reduce.compressors.forms import Form, Support
from p4reduce.compressors.interface import Compressor
from p4reduce.compressors.policy import Policy
from p4reduce.compressors.selection import Selection, load_kernels
from p4reduce.compressors.settings import check_choice
from p4reduce.compressors.step import Answer, Compressed, Decompressed, Step
from p4reduce.group import Group


class SharedSupport(Compressor):
    """A compressor for the form shared. A subclass defines what a leader chooses."""

    def __init__(
        self,
        policy: Policy | None = None,
        form: str = Form.SHARED,
        *,
        value_bits: int = 16,
        warmup_steps: int = 0,
        momentum: float = 0.0,
    ) -> None:
        """`value_bits`: 8, 16 or 32 bits for each value at a chosen element."""
        check_choice("value_bits", value_bits, (8, 16, 32))
        policy = self.default_policy() if policy is None else policy
        super().__init__(policy, form, warmup_steps=warmup_steps, momentum=momentum)
        self.value_bits = value_bits
        load_kernels()  # as in Compressor

    def choose(self, total: torch.Tensor, gradient: torch.Tensor, length: int) -> torch.Tensor:
        """Choose the elements to send, bool [elements], from G = R + dW and dW, for `select`."""
        raise NotImplementedError(f"{self.name} defines neither what `choose` nor what `select` returns")

    def next_residue(self, total: torch.Tensor, gradient: torch.Tensor, sent: torch.Tensor) -> torch.Tensor:
        """Return the next residue, from G, dW and what this rank sent of G; all float32 [elements]."""
        return total - sent

    def check(self, group: Group) -> None:
        if self.value_bits < 32 and self.form == Form.SHARED:
            levels(self.value_bits, group.world_size)

    def compress(self, step: Step) -> Compressed:
        leader = step.state.steps % step.group.world_size
        data = np.zeros(0, np.uint8)
        if step.group.rank == leader:
            total, indices, _ = self.select(step, self.length_of(step.key, step.gradient.shape))
            data = coordinates.encode(Coordinates(0.0, indices.numpy(), np.ones(len(indices), np.int8)))
        else:
            total = step.add_residue()
        return Compressed(Support(data, Part(total.numel(), leader), total, self.value_bits), kept=total)

    def decompress(self, step: Step, compressed: Compressed, answer: Answer) -> Decompressed:
        indices, mean_there, sent_there = answer.result
        total, length = compressed.kept, self.length_of(step.key, step.gradient.shape)
        sent, mean = torch.zeros_like(total), torch.zeros_like(total)
        sent[indices] = sent_there
        mean[indices] = mean_there
        return Decompressed(
            mean,
            residue=self.next_residue(total, step.flat, sent),
            sent_bits=len(indices) * (coordinates.published_bits(length) + self.value_bits),
        )

    def select(self, step: Step, length: int) -> Selection:
        """Return G = R + dW and the elements of it to send: those that `choose` chooses.

        Of a gradient that is all zero nothing is chosen, so its residue is kept. Raises InvalidTensorError as
        `Step.add_residue` does.
        """
        total = step.add_residue()
        if not bool(step.flat.any()):
            return Selection(total, torch.zeros(0, dtype=torch.int64))
        return Selection(total, torch.nonzero(self.choose(total, step.flat, length)).reshape(-1))

"""The form shared: each step one rank, the leader, selects elements for all, and all ranks' values there are summed.

The leader of a parameter's step t is rank t mod N. Its choice travels once, as coordinates; the values of every rank
at the chosen elements follow in a second collective, in 8, 16 or 32 bits each. What a rank does not send stays in its
residue. So the bytes down do not grow with the number of ranks.

A rank whose gradient is all zero still sends its values where another leads, and leads with an empty choice.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch

from p4reduce.codecs import coordinates
from p4reduce.codecs.coordinates import Coordinates, Part
from p4reduce.codecs.float_lanes import Summed, levels
from p4reduce.compressors.interface import AUTO, Compressor, Form, Message, Support, Values
from p4reduce.compressors.policy import Policy
from p4reduce_contracts.jobs.lease import Lease


class SharedSupport(Compressor):
    """A compressor that can travel in the form shared. A subclass says what a leader chooses."""

    def __init__(
        self, policy: Policy | None = None, form: str = AUTO, *, value_bits: int = 16, warmup_steps: int = 0
    ) -> None:
        """`value_bits`: 8, 16 or 32 bits for each value at a chosen element."""
        if value_bits not in (8, 16, 32):
            raise ValueError(f"value_bits is {value_bits}; give 8, 16 or 32")
        policy = policy or self.default_policy()
        super().__init__(policy, form, warmup_steps=warmup_steps)
        self.policy = self.policy.limited(coordinates.LONGEST_BIN)
        self.value_bits = value_bits
        self._pending: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}  # between compress and decompress: G, dW

    @abstractmethod
    def choose(self, total: torch.Tensor, step: torch.Tensor, length: int) -> torch.Tensor:
        """The elements to send, bool [elements], from G = R + dW and dW."""

    def next_residue(self, total: torch.Tensor, step: torch.Tensor, sent: torch.Tensor) -> torch.Tensor:
        """The next residue; all float32 [elements]."""
        return total - sent

    def length_of(self, key: str, shape: torch.Size) -> int:
        """Elements in a bin. ValueError for a parameter that the policy leaves dense."""
        length = self.policy.length(key, shape)
        if length is None:
            raise ValueError(f"the policy sends {key!r} dense: it is not compressed")
        return length

    def check(self, lease: Lease) -> None:
        if self.value_bits < 32 and self.form in (AUTO, Form.SHARED):
            levels(self.value_bits, lease.world_size)

    def compress(self, key: str, gradient: torch.Tensor, form: Form, lease: Lease) -> Message:
        length = self.length_of(key, gradient.shape)
        step = gradient.detach().reshape(-1)
        total = self._residues.added_to(key, step)
        self._pending[key] = total, step
        leader = self.step_of(key) % lease.world_size
        data = np.zeros(0, np.uint8)
        if lease.rank == leader:
            chosen = self.choose(total, step, length) if bool(step.any()) else torch.zeros_like(total, dtype=torch.bool)
            indices = torch.nonzero(chosen).reshape(-1).numpy()
            data = coordinates.encode(Coordinates(0.0, indices, np.ones(len(indices), np.int8)), length)
        return Support(data, Part(total.numel(), length, leader))

    def values_at(self, key: str, support: torch.Tensor) -> Values:
        return Values(self._pending[key][0][support], self.value_bits)

    def decompress(self, key: str, message: Message, answer: Any, lease: Lease) -> torch.Tensor:
        assert isinstance(message, Support)
        support, summed = answer
        assert isinstance(summed, Summed)
        total, step = self._pending.pop(key)
        sent, mean = torch.zeros_like(total), torch.zeros_like(total)
        sent[support] = summed.sent
        mean[support] = summed.total
        self.keep_back(key, self.next_residue(total, step, sent))
        entry_bits = 8 * coordinates.entry_bytes(message.part.bin_length)
        self.counted(key, total.numel(), len(support) * (entry_bits + self.value_bits))
        self.note(key, self.counts_of(len(support), total.numel(), lease))
        return mean

    def counts_of(self, chosen: int, elements: int, lease: Lease) -> list[float]:
        """What a step of the form shared tells about the cost of the next."""
        return [float(chosen)]

    def expected_bytes(self, key: str, shape: torch.Size, form: Form, lease: Lease) -> float | None:
        counts = self._counts.get(key)
        if counts is None:
            return None
        return self.shared_bytes(counts[0], self.length_of(key, shape))

    def shared_bytes(self, chosen: float, length: int) -> float:
        """Payload of the form shared for `chosen` elements."""
        return coordinates.STREAM_HEADER_BYTES + chosen * (coordinates.entry_bytes(length) + self.value_bits / 8)

"""The wire forms of chosen elements: how a rank packs its own for a bucket, and unpacks what all ranks sent.

`pack` makes of each step the message, and what is kept until its answer; `unpack` makes of the answer the mean and the
next state. Both are functions of values and take steps of their form only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from p4reduce.codecs.coordinates import Coordinates, Part, encode, published_bits
from p4reduce.compressors.messages import Integers, Message, Stream, Support
from p4reduce.compressors.selection import Selection, subtract_signs
from p4reduce.compressors.step import Answer, Compressed, Decompressed, Step

SCALE_BITS: Final = 32
_NO_BYTES: Final = np.zeros(0, np.uint8)

Select = Callable[[Sequence[Step]], Selection]
NextResidue = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""The next residue from G, dW and what this rank sent of G; all float32 [elements]."""


class Sum:
    """Signs as integers at their places, summed in lanes, in one unit: the scale agreed on in the step before."""

    def pack(self, steps: Sequence[Step], select: Select) -> list[Compressed]:
        """Return what this rank sends of each gradient, and what it keeps; `select` chooses the elements."""
        selected = select(steps)
        units = [_unit(step) for step in steps]
        sent = subtract_signs(selected, np.array(units, np.float32))
        chosen = sent.counts
        integers = np.zeros(int(selected.begin[-1]), np.int8)
        integers[sent.indices + np.repeat(selected.begin[:-1], chosen)] = sent.signs
        values = torch.split(torch.from_numpy(integers), np.diff(selected.begin).tolist())
        messages = [Integers(own, 1, unit) for own, unit in zip(values, units, strict=True)]
        metadata = [*zip(selected.scales.tolist(), chosen.astype(float).tolist(), strict=True)]
        return _compressed(steps, selected, sent, messages, metadata)

    def unpack(
        self, steps: Sequence[Step], compressed: Sequence[Compressed], answers: Sequence[Answer]
    ) -> list[Decompressed]:
        """Return the mean over all ranks of each gradient, with this rank's new state."""
        metadata = np.stack([answer.metadata for answer in answers])  # [parameters, ranks, 2]
        scales = agreed_scales(metadata[:, :, 0])
        selected = metadata[:, :, 1].sum(axis=1, dtype=np.float64).round().astype(int).tolist()
        means = [
            answer.result * (_unit(step) / step.group.world_size) for step, answer in zip(steps, answers, strict=True)
        ]
        return [
            Decompressed(mean, own.kept, own.sent_bits, scale, many)
            for mean, own, scale, many in zip(means, compressed, scales, selected, strict=True)
        ]


class Gather:
    """Each rank's coordinates with its own scale, which every rank adds up in the order of the ranks."""

    def pack(self, steps: Sequence[Step], select: Select) -> list[Compressed]:
        selected = select(steps)
        sent = subtract_signs(selected, selected.scales)
        sizes = [step.flat.numel() for step in steps]
        messages = [Stream(data, Part(size, None)) for data, size in zip(encode(sent), sizes, strict=True)]
        return _compressed(steps, selected, sent, messages, [()] * len(steps))

    def unpack(
        self, steps: Sequence[Step], compressed: Sequence[Compressed], answers: Sequence[Answer]
    ) -> list[Decompressed]:
        results = [answer.result for answer in answers]
        scales = agreed_scales(np.array([found.scales for found in results], np.float32))
        return [
            Decompressed(torch.from_numpy(found.mean), own.kept, own.sent_bits, scale, len(found.indices))
            for found, own, scale in zip(results, compressed, scales, strict=True)
        ]


@dataclass(frozen=True)
class Shared:
    """Each step one rank, the leader, chooses elements for all, and all ranks' values there are summed.

    The leader of a parameter's step t is rank t mod N. Its choice is sent once, as coordinates; the values of every
    rank at the chosen elements follow in a second collective. What a rank does not send stays in its residue. So the
    bytes down do not grow with the number of ranks.

    A rank whose gradient is all zero still sends its values when another rank leads, and chooses nothing when it leads.
    """

    value_bits: int
    """8, 16 or 32 bits for each value at a chosen element."""
    next_residue: NextResidue

    def pack(self, steps: Sequence[Step], select: Select) -> list[Compressed]:
        leaders = [step.state.steps % step.group.world_size for step in steps]
        led = [step for step, leader in zip(steps, leaders, strict=True) if leader == step.group.rank]
        own: Iterator[tuple[torch.Tensor, NDArray[np.uint8]]] = iter(())
        if led:
            selected = select(led)
            signs, no_scales = np.ones(len(selected.indices), np.int8), np.zeros(len(led), np.float32)
            choices = encode(Coordinates(selected.indices, signs, selected.ends, no_scales))
            own = zip(selected.totals, choices, strict=True)
        found = []
        for step, leader in zip(steps, leaders, strict=True):
            total, choice = next(own) if leader == step.group.rank else (step.add_residue(), _NO_BYTES)
            message = Support(choice, Part(total.numel(), leader), total, self.value_bits)
            found.append(Compressed(message, kept=total))
        return found

    def unpack(
        self, steps: Sequence[Step], compressed: Sequence[Compressed], answers: Sequence[Answer]
    ) -> list[Decompressed]:
        found = []
        for step, own, answer in zip(steps, compressed, answers, strict=True):
            indices, mean_there, sent_there = answer.result
            sent, mean = torch.zeros_like(own.kept), torch.zeros_like(own.kept)
            sent[indices] = sent_there
            mean[indices] = mean_there
            residue = self.next_residue(own.kept, step.flat, sent)
            bits = len(indices) * (published_bits(step.length) + self.value_bits)
            found.append(Decompressed(mean, residue, bits))
        return found


WireForm = Sum | Gather | Shared


def agreed_scales(scales: NDArray[np.float32]) -> list[float]:
    """Return each parameter's scale of the next step, the mean of all ranks', [parameters, ranks]."""
    return [float(scale) for scale in scales.mean(axis=1, dtype=np.float64).tolist()]


def _unit(step: Step) -> float:
    assert step.state.scale is not None, "a first step in the form sum begins with the first agreement"
    return step.state.scale


def _compressed(
    steps: Sequence[Step],
    selected: Selection,
    sent: Coordinates,
    messages: Sequence[Message],
    metadata: Sequence[tuple[float, ...]],
) -> list[Compressed]:
    """Return what is sent as signs; the bits are those of the coordinates and their scale, as AdaComp counts them."""
    chosen = sent.counts.tolist()
    bits = [SCALE_BITS + published_bits(step.length) * many for step, many in zip(steps, chosen, strict=True)]
    places = [
        indices if amount > 0 else indices[:0]
        for indices, amount in zip(torch.from_numpy(sent.indices).split_with_sizes(chosen), sent.scales, strict=True)
    ]
    return [Compressed(*own) for own in zip(messages, selected.totals, bits, metadata, places, strict=True)]

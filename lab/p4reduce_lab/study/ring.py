"""A ring of hosts in one process, and what INCEPTIONN's authors compared it with: numbers cut to 16 bits.

The codec is the ring's own, and its schedule is followed hop by hop, without ranks that wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from p4reduce.codecs.inceptionn import Inceptionn

FLOAT_BYTES = 4
_UPPER_HALF = np.uint32(0xFFFF0000)
"""Of a float32: sign, exponent and 7 bits of the mantissa."""

_LARGEST = np.finfo(np.float32).max

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class RingVariant:
    """How gradients go round: in a codec, or dense with the gradients or the weights cut to their upper 16 bits."""

    name: str
    codec: Inceptionn | None = None
    cut: Literal["", "gradients", "weights"] = ""


RINGS = {
    variant.name: variant
    for variant in (
        RingVariant("ring-dense"),
        RingVariant("ring-published-10", Inceptionn(2.0**-10, rule="published")),
        RingVariant("ring-bounded-10", Inceptionn(2.0**-10)),
        RingVariant("ring-bounded-6", Inceptionn(2.0**-6)),
        RingVariant("ring-absolute-10", Inceptionn(2.0**-10, rule="published", scale=1.0)),
        RingVariant("ring-absolute-finer", Inceptionn(2.0**-10, rule="published", scale=2.0**-5)),
        RingVariant("ring-gradients-16", cut="gradients"),
        RingVariant("ring-weights-16", cut="weights"),
    )
}


class Ring:
    """All ranks of one ring, and what they have sent."""

    def __init__(self, variant: RingVariant, world_size: int) -> None:
        self._variant, self._world_size = variant, world_size
        self._steps = self._elements = self._zeros = self._bytes = 0

    def mean(self, gradients: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Return the mean of all ranks' gradients by parameter name, taken in one bucket."""
        flat = [torch.cat([own.reshape(-1) for own in of_rank.values()]).numpy() for of_rank in gradients]
        if self._variant.cut == "gradients":
            flat = [cut(own) for own in flat]
        elements = len(flat[0])
        if self._variant.codec is None:
            found = np.mean(flat, axis=0, dtype=np.float32)
            wide = FLOAT_BYTES if not self._variant.cut else FLOAT_BYTES // 2
            self._bytes += 2 * (self._world_size - 1) * wide * elements  # of all ranks
        else:
            found, sent = mean_in_process(flat, self._variant.codec)
            self._bytes += sent
        self._steps += 1
        self._elements += elements
        self._zeros += elements - int(np.count_nonzero(found))
        sizes = [own.numel() for own in gradients[0].values()]
        parts = torch.split(torch.from_numpy(found), sizes)
        return {name: part.view_as(own) for (name, own), part in zip(gradients[0].items(), parts, strict=True)}

    def after_step(self, parameters: Mapping[str, torch.Tensor]) -> None:
        """Cut the weights, where these are what the ranks send each other."""
        if self._variant.cut == "weights":
            for parameter in parameters.values():
                parameter.copy_(torch.from_numpy(cut(parameter.numpy())))

    def counted(self) -> dict[str, Any]:
        """Return a rank's mean bytes a step, those of float32, and the share of zeros in the means."""
        steps = max(1, self._steps)
        dense = 2 * (self._world_size - 1) * FLOAT_BYTES * self._elements
        return {
            "bytes_a_step": round(self._bytes / self._world_size / steps),
            "dense_bytes_a_step": round(dense / self._world_size / steps),
            "zeros": round(self._zeros / max(1, self._elements), 5),
        }


def mean_in_process(values: Sequence[Floats], codec: Inceptionn) -> tuple[Floats, int]:
    """Return the mean over ranks that are all in this process, float32 [elements], and the bytes that all have sent.

    What `mean_over_ring` makes of them, bit for bit, part by part: a part begins at the rank of its number, passes all
    others, and the last one's encoding goes round to them.
    """
    world_size, elements = len(values), len(values[0])
    ends = [elements * part // world_size for part in range(world_size + 1)]
    mean = np.empty(elements, np.float32)
    sent = 0
    for first, part in enumerate(map(slice, ends[:-1], ends[1:])):
        total = values[first][part] / np.float32(world_size)
        for hop in range(1, world_size):
            data = codec.encode(total)
            sent += len(data)
            own = values[(first + hop) % world_size][part] / np.float32(world_size)
            total = np.clip(own + codec.decode(data, len(own)), -_LARGEST, _LARGEST)
        data = codec.encode(total)
        sent += (world_size - 1) * len(data)
        mean[part] = codec.decode(data, len(total))
    return mean, sent


def cut(values: Floats) -> Floats:
    """Return the numbers with the lower 16 of their 32 bits set to 0, which is towards zero."""
    return (values.view(np.uint32) & _UPPER_HALF).view(np.float32)

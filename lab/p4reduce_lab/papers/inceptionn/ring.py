"""A ring of hosts, all in this process: each rank adds up one part of N, and the sums go round.

Every rank sends to the next and receives from the one before. In N - 1 hops each part passes all ranks, each of which
decodes it, adds its own and encodes it anew; then the finished parts go round in N - 1 hops as they were encoded. The
rank that finished a part takes what it decodes of it, as the others do: so all have the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from p4reduce.errors import NotFiniteError
from p4reduce_lab.papers.inceptionn.codec import Floats, Inceptionn

_LARGEST: Final = np.finfo(np.float32).max


def mean_over_ring(values: Sequence[Floats], codec: Inceptionn) -> tuple[Floats, int]:
    """Return the mean of the ranks' values, float32 [elements], and the number of bytes that all ranks send.

    Raises NotFiniteError for a NaN or an infinity.
    """
    world_size, elements = len(values), len(values[0])
    if not all(np.isfinite(own).all() for own in values):
        raise NotFiniteError("a rank's values hold a NaN or an infinity: lower the learning rate, or skip this step")
    sums = [own / np.float32(world_size) for own in values]  # before they are added up, so that they stay finite
    mean, sent = np.empty_like(sums[0]), 0
    for part in range(world_size):
        of_part = slice(elements * part // world_size, elements * (part + 1) // world_size)
        size = of_part.stop - of_part.start
        data = codec.encode(sums[part][of_part])
        for hop in range(1, world_size):
            sent += len(data)
            total = sums[(part + hop) % world_size][of_part] + codec.decode(data, size)
            data = codec.encode(np.clip(total, -_LARGEST, _LARGEST))  # rounding up may pass the largest number
        mean[of_part] = codec.decode(data, size)
        sent += (world_size - 1) * len(data)
    return mean, sent

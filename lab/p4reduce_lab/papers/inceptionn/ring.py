"""The ring's schedule, without I/O: each rank adds up one part of N, and the sums go round.

Every rank sends to the next and receives from the one before. In N - 1 hops each part passes all ranks, each of which
decodes it, adds its own and encodes it anew; then the finished parts go round in N - 1 hops as they were encoded. The
rank that finished a part takes what it decodes of it, as the others do: so all have the same bits.

The bytes of a hop are a head, whose length all ranks know, and a body, whose length is in the head. A rank that cannot
take part sends heads of another kind through all hops, and so does every rank that receives one. After N - 1 hops all
have: they raise in the same collective, and can go on with the next.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple

import numpy as np

from p4reduce.errors import InvalidTensorError, NotFiniteError, PeerRefusedError, Reason
from p4reduce.protocol.refusal import code_of, reason_of, reason_of_code
from p4reduce_lab.papers.inceptionn.codec import Bytes, Floats, Inceptionn

MOST_RANKS: Final = 4096
_REFUSED: Final = -(1 << 15)
"""A head begins with an int16. In one that refuses it is this, and more by MOST_RANKS for each reason, and the rank."""
_LARGEST: Final = np.finfo(np.float32).max


class Hop(NamedTuple):
    """The message for the next rank, in two pieces, and the elements of the part that comes from the rank before."""

    head: Bytes
    body: Bytes
    elements: int  #: elements of the part that comes


def mean_over_ring(
    values: Floats, rank: int, world_size: int, codec: Inceptionn, name: str
) -> Generator[Hop, Bytes, Floats]:
    """Return the mean over all ranks, float32 [elements], the same bits on all; yields 2 (N - 1) hops.

    Raises, after all hops, InvalidTensorError for a NaN or an infinity, and PeerRefusedError for another rank's.
    """
    ends = [len(values) * part // world_size for part in range(world_size + 1)]
    parts = [slice(*ends[part : part + 2]) for part in range(world_size)]
    sizes = [part.stop - part.start for part in parts]
    error: InvalidTensorError | PeerRefusedError | None = None
    refusal = b""
    sums = mean = values
    if not np.isfinite(values).all():
        error = NotFiniteError(
            f"{name} holds a NaN or an infinity: lower the learning rate, or skip this step on all ranks"
        )
        refusal = _refusal(rank, reason_of(error))
    else:
        sums = values / np.float32(world_size)  # before it is added up, so that it stays finite
        mean = np.empty_like(sums)
    finished = np.zeros(0, np.uint8)

    for hop in range(2 * (world_size - 1)):
        adding = hop < world_size - 1
        outgoing, incoming = (rank - hop) % world_size, (rank - hop - 1) % world_size
        if refusal:
            sent = np.zeros(codec.head_bytes(sizes[outgoing]), np.uint8)  # no number, so no body
            sent[:2] = np.frombuffer(refusal, np.uint8)
        elif adding:
            sent = codec.encode(sums[parts[outgoing]])
        elif hop == world_size - 1:
            sent = codec.encode(sums[parts[outgoing]])
            mean[parts[outgoing]] = codec.decode(sent, sizes[outgoing])
        else:
            sent = finished
        head = codec.head_bytes(sizes[outgoing])
        received = yield Hop(sent[:head], sent[head:], sizes[incoming])
        if error is not None:
            continue
        try:
            found = _refused(received)
            if found is not None:
                error = PeerRefusedError(f"the ring's mean of {name}", dict([found]))
                refusal = bytes(received[:2])
            elif adding:
                total = sums[parts[incoming]] + codec.decode(received, sizes[incoming])
                sums[parts[incoming]] = np.clip(total, -_LARGEST, _LARGEST)  # rounding up may pass the largest number
            else:
                mean[parts[incoming]] = codec.decode(received, sizes[incoming])
                finished = received
        except InvalidTensorError as strange:
            error, refusal = strange, _refusal(rank, reason_of(strange))
    if error is not None:
        raise error
    return mean if world_size > 1 else codec.decode(codec.encode(sums), len(sums))


def _refusal(rank: int, reason: Reason) -> bytes:
    return np.array([_REFUSED + MOST_RANKS * code_of(reason) + rank], "<i2").tobytes()


def _refused(head: Bytes) -> tuple[int, Reason] | None:
    """The rank that refused, and why; None where the head is of numbers."""
    code, rank = divmod(int(head[:2].view("<i2")[0]) - _REFUSED, MOST_RANKS)
    return (rank, reason_of_code(code)) if 0 <= code < len(Reason) else None

"""Real frames with something done to them, from a seed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence

from p4reduce_contracts.wire.geometry import SMALL
from p4reduce_runtime.underlay import ENCAP_BYTES
from rigs.recorded.network import ETHERNET_BYTES, FAULTS, ORDINARY

_FAULTS = tuple(FAULTS.values())
_ORDINARY = tuple(ORDINARY.values())
_SHORTEST_CONTRIBUTION = ENCAP_BYTES + SMALL.frame_header_bytes


def mutated(source: random.Random, frames: Sequence[bytes], ranks: int) -> bytes:
    """One of the frames, or ordinary traffic of one of the ranks, with one to three changes.

    It has at least the bytes of an Ethernet header.
    """
    frame = source.choice(frames)
    if source.random() < 0.1:
        frame = source.choice(_ORDINARY)(source, source.randrange(ranks))
    for _ in range(source.randint(1, 3)):
        frame = _change(source, frame, frames)
    return frame if len(frame) >= ETHERNET_BYTES else frame + bytes(ETHERNET_BYTES - len(frame))


def _change(source: random.Random, frame: bytes, frames: Sequence[bytes]) -> bytes:
    draw = source.random()
    if draw < 0.4 and len(frame) >= _SHORTEST_CONTRIBUTION:
        with contextlib.suppress(OverflowError):  # a length that is at its limit already
            return source.choice(_FAULTS)(source, frame)
    start = source.randrange(len(frame) + 1)
    end = min(len(frame), start + source.choice((1, 1, 2, 4, 16)))
    if draw < 0.75:
        return frame[:start] + source.randbytes(end - start) + frame[end:]
    if draw < 0.85:
        other = source.choice(frames)
        return frame[:start] + other[start:]
    if draw < 0.95:
        return frame[:start] + frame[end:]
    return frame[:start] + source.randbytes(source.randint(1, 40)) + frame[start:]

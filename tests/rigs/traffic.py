"""Frames of a job in lock step, many of them damaged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from rigs import wire
from rigs.pipeline import PipelineRig, rank_port

RANKS: Final = 3
SLOTS: Final = 3
PORTS: Final = (1, 2, 3, 4)
"""Ports for unknown destinations."""
COUNTERS: Final = ("contributions", "duplicates", "results", "pendings")
"""Counters of a job that the frames change."""


def a_contribution(rig: PipelineRig, rand: random.Random, slot: int, round_: int) -> bytes:
    keys = tuple(rand.choice((rand.getrandbits(32), wire.KEY_NONE)) for _ in range(rig.geometry.columns))
    columns = [column for column in range(rig.geometry.columns) if rand.random() < 0.5]
    return rig.contribution(slot, round_, keys, {c: rand.randbytes(rig.geometry.block_bytes) for c in columns})


def damaged_traffic(rig: PipelineRig, rand: random.Random, steps: int) -> Iterator[tuple[int, bytes]]:
    """Ranks in lock step, from round 2^32 - 7 on: contributions, repetitions of the last two rounds, flipped bits.

    Yields ports and frames. AssertionError at the end where a slot has not come to round 0 again.
    """
    start = 2**32 - 7
    rounds = dict.fromkeys(range(SLOTS), 0)
    sent: dict[tuple[int, int], list[bytes]] = {(slot, rank): [] for slot in range(SLOTS) for rank in range(RANKS)}
    for _ in range(steps):
        slot, rank = rand.randrange(SLOTS), rand.randrange(RANKS)
        done = sent[slot, rank]
        is_next = len(done) == rounds[slot]
        payload = a_contribution(rig, rand, slot, (start + rounds[slot]) % 2**32) if is_next else rand.choice(done[-2:])
        frame = rig.frame(rank, payload)
        if damaged := rand.random() < 0.4:
            bit = rand.randrange(8 * len(frame))
            frame = (int.from_bytes(frame, "big") ^ 1 << bit).to_bytes(len(frame), "big")
            if is_next and bit >= 8 * (42 + rig.geometry.frame_header_bytes):
                continue  # a flipped block is a contribution like any other: it would be this rank's
        yield rank_port(rank), frame
        if not damaged and is_next:
            done.append(payload)
            rounds[slot] += all(len(sent[slot, other]) > rounds[slot] for other in range(RANKS))
    assert min(rounds.values()) > 7

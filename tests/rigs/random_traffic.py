"""Collectives of several ranks over a network that loses, repeats, delays and forges frames, and all that they send."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from p4reduce.codecs import Floats, Gathered, Int32, Lanes, Segment
from p4reduce.errors import CollectiveError, Reason
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.call import Call, CodecId, Kind
from p4reduce.protocol.collective import Collective
from p4reduce.protocol.rtt import RoundTrip
from p4reduce.stats import CollectiveStats
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire import DEFAULT, PENDING, RESULT, SMALL, Frame, Geometry, pack, unpack
from rigs.secret import rank_secret, rank_secrets

SLOTS = 6
TIMEOUT_S = 20.0


class Traffic:
    """Carries frames between collectives and the reference switch, and keeps a digest of all that the ranks do."""

    def __init__(self, geometry: Geometry, world_size: int, seed: int, harm: float) -> None:
        self.geometry, self.world_size, self.harm = geometry, world_size, harm
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.switch = ReferenceSwitch(geometry, SLOTS)
        self.switch.add_job(1, 7, world_size, 0, SLOTS, rank_secrets(world_size))
        first = self.random.choice([0, 2**32 - 2])
        self.rounds = [[first] * SLOTS for _ in range(world_size)]
        self.round_trips = [RoundTrip() for _ in range(world_size)]
        self.now = 0.0
        self.digest = hashlib.sha256()

    def collective(self, sources: Sequence[Blocks], calls: Sequence[Call]) -> bool:
        """Run one collective to its end or first error; return whether it came to its end."""
        ranks = []
        for rank, (source, call) in enumerate(zip(sources, calls, strict=True)):
            shape = self.geometry.columns, self.geometry.block_words
            lease = Lease(1, "test", 7, rank, self.world_size, SLOTS, *shape, secret=rank_secret(rank))
            options: dict[str, Any] = {"window": SLOTS - 1, "refusal_window": SLOTS, "proposal": 3 + rank}
            options |= {"round_trip": self.round_trips[rank], "stats": CollectiveStats(stale=3)}
            ranks.append(Collective(lease, self.rounds[rank], source, call, TIMEOUT_S, **options))
        down: list[list[bytes]] = [[] for _ in ranks]
        try:
            for rank, collective in enumerate(ranks):
                self.now += 0.001
                self.up(rank, collective, collective.start(self.now), down)
            while not all(collective.done for collective in ranks):
                self.now += self.random.choice([0.0001, 0.0003, 0.001, 0.004])
                rank = self.random.randrange(len(ranks))
                if down[rank]:
                    size = self.random.choice([1, 3, 64])
                    burst, down[rank] = down[rank][:size], down[rank][size:]
                    self.up(rank, ranks[rank], ranks[rank].receive_burst(burst, self.now), down)
                elif not any(down):
                    timers = [(collective.next_timer, rank) for rank, collective in enumerate(ranks)]
                    at, rank = min((at, rank) for at, rank in timers if at is not None)
                    self.now = max(self.now, at)
                    self.up(rank, ranks[rank], ranks[rank].on_timer(self.now), down)
        except CollectiveError as error:
            self.digest.update(repr(error).encode())
            return False
        for collective in ranks:
            for result in [] if collective.refusals else collective.result():
                for part in result if isinstance(result, tuple) else (result,):  # a sum, or it and what was sent
                    self.digest.update(part.tobytes())
        return True

    def up(self, rank: int, collective: Collective, frames: list[bytes], down: list[list[bytes]]) -> None:
        shown = frames, collective.stats, collective.next_timer, collective.waiting(self.now), collective.refusals
        self.digest.update(repr((self.now, rank, shown, self.round_trips[rank].table.tolist())).encode())
        for frame in frames:
            for arrived in self.disturbed(frame):
                for to, answer in self.switch.process(rank, arrived):
                    for payload in [*self.disturbed(answer), *self.forged(answer)]:
                        place = len(down[to])
                        if self.random.random() < self.harm:
                            place = self.random.randrange(place + 1)
                        down[to].insert(place, payload)

    def disturbed(self, payload: bytes) -> list[bytes]:
        """What comes out of the network: nothing, the frame, two of it, or one with a flipped bit or another length."""
        chance = self.random.random
        if chance() < self.harm:
            return []
        copies = [payload] * (1 + (chance() < self.harm))
        if chance() < self.harm:
            changed = bytearray(payload)
            changed[self.random.randrange(len(changed))] ^= 1 << self.random.randrange(8)
            copies.append(bytes(changed))
        if chance() < self.harm / 2:
            copies.append(payload[: self.random.randrange(len(payload))])
        return copies

    def forged(self, payload: bytes) -> list[bytes]:
        """Now and then a frame with a right header checksum that contradicts what was agreed."""
        if self.random.random() >= self.harm:
            return []
        frame = unpack(self.geometry, payload)
        words = self.random.choice([0, 1, 255, 0xFFFFFFFE, 0xFFFFFFFF, frame.keys[0], self.random.getrandbits(32)])
        changes: list[dict[str, Any]] = [
            {"keys": (words, *frame.keys[1:])},
            {"round": (frame.round + self.random.choice([-1, 1, 2])) % 2**32},
            {"slot": self.random.randrange(SLOTS + 2)},
            {"type": self.random.choice([RESULT, PENDING])},
            {"check": frame.check ^ 1},
            {"blocks": b"".join(bytes([block[0] ^ 0x80]) + block[1:] for block in halves(frame.blocks))},
            {"epoch": 8},
            {"job": 2},
            {"secret": frame.secret ^ 1},
        ]
        changed: Frame = frame._replace(**self.random.choice(changes))
        return [pack(self.geometry, changed)]

    def segments(self) -> list[list[Segment]]:
        """Of each rank: tensors of every codec, of odd sizes, some of them empty or sparse."""
        random, numbers, words = self.random, self.numbers, self.geometry.block_words
        sizes = [random.choice([0, 1, words - 1, 9 * words + 3, 40 * words]) for _ in range(6)]
        order = random.sample(range(6), random.randrange(1, 7))
        density = random.choice([0.02, 0.3, 1.0])
        bits = random.choice([8, 16])
        mean = random.random() < 0.5
        made = []
        for rank in range(self.world_size):
            floats = [numbers.normal(size=size).astype(np.float32) * np.float32(10.0) ** rank for size in sizes]
            floats = [
                np.where(np.repeat(numbers.random(-(-len(f) // words)) < density, words)[: len(f)], f, 0)
                for f in floats
            ]
            every: list[Segment] = [
                Floats(floats[0].astype(np.float32), mean=mean),
                Int32(numbers.integers(-(2**31), 2**31, sizes[1]).astype(np.int32)),
                Lanes(numbers.integers(-1, 2, sizes[2]).astype(np.int32), 8, bound=1),
                Floats(floats[3].astype(np.float32), bits, mean=mean),
                Gathered(numbers.integers(0, 256, random.randrange(sizes[4] + 1)).astype(np.uint8), sizes[4], rank),
                Floats(floats[5].astype(np.float32) * np.float32(1e-42)),
            ]
            made.append([every[i] for i in order])
        return made


def halves(blocks: bytes) -> list[bytes]:
    """Two parts of whole words, or nothing: their first bits, turned over, change no check word."""
    middle = len(blocks) // 8 * 4
    return [blocks[:middle], blocks[middle:]] if blocks else []


def call_of(number: int, segments: Sequence[Segment]) -> Call:
    layout = ",".join(segment.layout for segment in segments)
    return Call(number, Kind.ALL_REDUCE, CodecId.SEGMENTS, len(segments), 0, layout)


def play(seed: int, harm: float, collectives: int = 3) -> str:
    """Return a digest of all frames, counts, timers, errors and results of some collectives, one after the other."""
    geometry = SMALL if seed % 4 else DEFAULT
    world_size = 1 + seed % 4
    traffic = Traffic(geometry, world_size, seed, harm)
    for number in range(collectives):
        segments = traffic.segments()
        sources: list[Blocks] = []
        for own in segments:
            parts = [segment.bind(world_size, geometry.block_words, traffic.random.random() < 0.3) for segment in own]
            sources.append(Blocks([part for blocks in parts for part in blocks.parts]))
        calls = [call_of(number, own) for own in segments]
        if traffic.random.random() < 0.2:
            sources[-1] = Blocks()
            calls[-1] = Call(number, Kind.REFUSED, detail=Reason.NOT_FINITE)
        elif traffic.random.random() < 0.1:
            calls[-1] = Call(number + 1, Kind.BARRIER)
        if not traffic.collective(sources, calls):
            break
    return traffic.digest.hexdigest()


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        seed, harm = argument.split(":")
        print(play(int(seed), float(harm)))

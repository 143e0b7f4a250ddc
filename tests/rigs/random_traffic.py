"""Collectives of several ranks over a network that loses, repeats, delays and forges frames, and all that they send."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from p4reduce.codecs import Floats, Gathered, Int32, Lanes, Segment
from p4reduce.errors import CollectiveError, Reason
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.call import Call, CodecId, Kind
from p4reduce.protocol.collective import Collective
from p4reduce.stats import CollectiveStats
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce.testing.world import Member, NetworkConditions, OneSwitch, World
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire import DEFAULT, PENDING, RESULT, SMALL, Frame, Geometry, pack, unpack
from rigs.secret import rank_secret, rank_secrets

SLOTS = 6
TIMEOUT_S = 20.0


class Traffic:
    """The reference switch at the end of paths that lose, repeat, damage and forge frames."""

    def __init__(self, geometry: Geometry, world_size: int, seed: int, harm: float) -> None:
        self.geometry, self.world_size, self.harm = geometry, world_size, harm
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.switch = ReferenceSwitch(geometry, SLOTS)
        self.switch.add_job(1, 7, world_size, 0, SLOTS, rank_secrets(world_size))

    def process(self, rank: int, payload: bytes) -> list[tuple[int, bytes]]:
        """Return what arrives at ranks because of a frame of one."""
        answers = [answer for arrived in self.disturbed(payload) for answer in self.switch.process(rank, arrived)]
        return [(to, got) for to, answer in answers for got in [*self.disturbed(answer), *self.forged(answer)]]

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


class Recorded(World):
    """A world that keeps a digest of all that the ranks do."""

    def __init__(self, traffic: Traffic, members: Sequence[Member], seed: int) -> None:
        conditions = NetworkConditions(late=traffic.harm, late_s=0.1, delay_s=0.001)
        super().__init__(OneSwitch(traffic), members, conditions, seed)
        self.digest = hashlib.sha256()
        self._arrived: list[list[bytes]] = [[] for _ in members]

    def _down(self, member: Member, payload: bytes) -> None:
        arrived = self._arrived[member.lease.rank]
        arrived.append(payload)
        if member.running is not None and self.random.random() < 0.6:  # else it comes with the next ones
            self._up(member, member.running.receive_burst(arrived.copy(), self.now))
            arrived.clear()

    def _up(self, member: Member, payloads: list[bytes]) -> None:
        running = member.running
        assert running is not None
        shown = payloads, member.stats, running.next_timer, running.waiting(self.now), running.refusals
        self.digest.update(repr((self.now, member.lease.rank, shown, member.round_trip.table.tolist())).encode())
        super()._up(member, payloads)


def play(seed: int, harm: float, collectives: int = 3) -> str:
    """Return a digest of all frames, counts, timers, errors and results of some collectives, one after the other."""
    geometry = SMALL if seed % 4 else DEFAULT
    world_size, words = 1 + seed % 4, geometry.block_words
    traffic = Traffic(geometry, world_size, seed, harm)
    first = traffic.random.choice([0, 2**32 - 2])
    calls: list[list[tuple[Blocks, Call]]] = [[] for _ in range(world_size)]
    for number in range(collectives):
        for rank, own in enumerate(traffic.segments()):
            parts = [segment.bind(world_size, words, traffic.random.random() < 0.3) for segment in own]
            calls[rank].append((Blocks([part for blocks in parts for part in blocks.parts]), call_of(number, own)))
        if traffic.random.random() < 0.2:
            calls[-1][-1] = Blocks(), Call(number, Kind.REFUSED, detail=Reason.NOT_FINITE)
        elif traffic.random.random() < 0.2:
            calls[-1][-1] = calls[-1][-1][0], Call(number + 1, Kind.BARRIER)
    members = [
        Member(
            Lease(1, "test", 7, rank, world_size, SLOTS, geometry.columns, words, secret=rank_secret(rank)),
            calls[rank],
            [first] * SLOTS,
            TIMEOUT_S,
            SLOTS - 1,
            stats=CollectiveStats(stale=3),
            make=partial(Collective, refusal_window=SLOTS, proposal=3 + rank),
        )
        for rank in range(world_size)
    ]
    world = Recorded(traffic, members, seed)
    try:
        results = world.run()
    except CollectiveError as error:
        results = [[[repr(error)]]]
    for result in (one for of_rank in results for of_call in of_rank for one in of_call):
        for part in result if isinstance(result, tuple) else (result,):  # a sum, or it and what was sent
            world.digest.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())
    return world.digest.hexdigest()


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        seed, harm = argument.split(":")
        print(play(int(seed), float(harm)))

"""Both engines, fed the same frames at the same times: nothing that shows may differ."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from p4reduce.codecs import Float32, FloatLanes, Gathered, Int32, Lanes, Segment
from p4reduce.errors import CollectiveError, Reason
from p4reduce.protocol.call import Call, CodecId, Kind
from p4reduce.protocol.collective import load_kernels
from p4reduce.protocol.compiled.collective import CompiledCollective
from p4reduce.protocol.compiled.segments import Segments
from p4reduce.protocol.engine import Collective
from p4reduce.protocol.lookahead import keys_at_or_after
from p4reduce.protocol.rtt import RoundTrip
from p4reduce.protocol.source import BlockSource, ConcatenatedBlocks, NoBlocks
from p4reduce.stats import CollectiveStats
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire import DEFAULT, KEY_NONE, PENDING, RESULT, SMALL, Frame, Geometry, pack, unpack
from rigs.secret import rank_secret, rank_secrets

KERNELS = load_kernels()
pytestmark = pytest.mark.skipif(KERNELS is None, reason="kernels are switched off")
SLOTS = 6
TIMEOUT_S = 20.0


class Twins:
    """One rank's collective in both engines; every difference is an AssertionError."""

    def __init__(
        self, lease: Lease, rounds: list[int], source: BlockSource, call: Call, round_trips: Sequence[RoundTrip]
    ) -> None:
        assert KERNELS is not None
        segments = Segments.of(source)
        assert segments is not None
        self.rounds = list(rounds), list(rounds)
        self.stats = CollectiveStats(stale=3), CollectiveStats(stale=3)
        self.round_trips = round_trips
        options: list[dict[str, Any]] = [
            {
                "round_trip": trip,
                "stats": stats,
                "window": SLOTS - 1,
                "refusal_window": SLOTS,
                "proposal": 3 + lease.rank,
            }
            for trip, stats in zip(round_trips, self.stats, strict=True)
        ]
        self.engines = (
            Collective(lease, self.rounds[0], source, call, TIMEOUT_S, **options[0]),
            CompiledCollective(KERNELS, lease, self.rounds[1], segments, call, TIMEOUT_S, **options[1]),
        )
        self.error: CollectiveError | None = None

    def both(self, method: str, *arguments: Any, now: float) -> list[bytes]:
        """Let both engines do the same; return the frames that they send."""
        outcomes: list[Any] = []
        for engine in self.engines:
            try:
                outcomes.append(getattr(engine, method)(*arguments, now))
            except CollectiveError as error:
                self.error = error
                outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1]
        self.compare(now)
        return [] if self.error else outcomes[0]

    def compare(self, now: float) -> None:
        python, compiled = self.engines
        assert self.stats[0] == self.stats[1]
        assert self.round_trips[0].numbers[1:] == self.round_trips[1].numbers[1:]
        assert self.round_trips[0].smoothed_s == self.round_trips[1].smoothed_s
        if self.error is not None:
            return
        for name in ("next_timer", "done", "slots", "refusals", "next_window"):
            assert getattr(python, name) == getattr(compiled, name), name
        assert python.waiting(now) == compiled.waiting(now)
        assert np.array_equal(python.agreed_exponents, compiled.agreed_exponents)
        if python.done:
            assert self.rounds[0] == self.rounds[1]
            if not python.refusals:
                compare_results(python.result(), compiled.result())


def compare_results(found: list[Any], other: list[Any]) -> None:
    assert len(found) == len(other)
    for one, two in zip(found, other, strict=True):
        assert one.dtype == two.dtype and one.shape == two.shape
        assert one.tobytes() == two.tobytes()


class Storm:
    """Carries frames between twins and the reference switch: loses, repeats, delays, flips, and delivers in bursts."""

    def __init__(self, geometry: Geometry, world_size: int, seed: int, harm: float) -> None:
        self.geometry, self.world_size, self.harm = geometry, world_size, harm
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.switch = ReferenceSwitch(geometry, SLOTS)
        self.switch.add_job(1, 7, world_size, 0, SLOTS, rank_secrets(world_size))
        first = self.random.choice([0, 2**32 - 2])
        self.rounds = [[first] * SLOTS for _ in range(world_size)]
        self.round_trips = [(RoundTrip(), RoundTrip()) for _ in range(world_size)]
        self.now = 0.0

    def collective(self, sources: Sequence[BlockSource], calls: Sequence[Call]) -> list[Twins]:
        """Run one collective to its end or first error."""
        twins = []
        for rank, (source, call) in enumerate(zip(sources, calls, strict=True)):
            secret = rank_secret(rank)
            shape = self.geometry.columns, self.geometry.block_words
            lease = Lease(1, "test", 7, rank, self.world_size, SLOTS, *shape, secret=secret)
            twins.append(Twins(lease, self.rounds[rank], source, call, self.round_trips[rank]))
        down: list[list[bytes]] = [[] for _ in twins]
        for rank, twin in enumerate(twins):
            self.now += 0.001
            self.up(rank, twin.both("start", now=self.now), down)
        while not all(twin.engines[0].done for twin in twins):
            if any(twin.error for twin in twins):
                return twins
            self.now += self.random.choice([0.0001, 0.0003, 0.001, 0.004])
            rank = self.random.randrange(len(twins))
            if down[rank]:
                size = self.random.choice([1, 3, 64])
                burst, down[rank] = down[rank][:size], down[rank][size:]
                self.up(rank, twins[rank].both("receive_burst", burst, now=self.now), down)
            elif not any(down):
                timers = [(twin.engines[0].next_timer, rank) for rank, twin in enumerate(twins)]
                at, rank = min((at, rank) for at, rank in timers if at is not None)
                self.now = max(self.now, at)
                self.up(rank, twins[rank].both("on_timer", now=self.now), down)
        for rank, twin in enumerate(twins):
            self.rounds[rank] = list(twin.rounds[0])
        return twins

    def up(self, rank: int, frames: list[bytes], down: list[list[bytes]]) -> None:
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
                Float32(floats[0].astype(np.float32), mean=mean),
                Int32(numbers.integers(-(2**31), 2**31, sizes[1]).astype(np.int32)),
                Lanes(numbers.integers(-1, 2, sizes[2]).astype(np.int32), 8, bound=1),
                FloatLanes(floats[3].astype(np.float32), bits, mean=mean),
                Gathered(numbers.integers(0, 256, random.randrange(sizes[4] + 1)).astype(np.uint8), sizes[4], rank),
                Float32(floats[5].astype(np.float32) * np.float32(1e-42)),
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


@pytest.mark.parametrize("harm", [0.0, 0.02, 0.15], ids=["calm", "wind", "storm"])
@pytest.mark.parametrize("seed", range(8))
def test_both_engines_do_the_same(seed: int, harm: float) -> None:
    geometry = SMALL if seed % 4 else DEFAULT
    world_size = 1 + seed % 4
    storm = Storm(geometry, world_size, seed, harm)
    for number in range(3):
        segments = storm.segments()
        sources: list[BlockSource] = []
        for own in segments:
            parts = [segment.bind(world_size, geometry.block_words, storm.random.random() < 0.3) for segment in own]
            sources.append(parts[0] if len(parts) == 1 else ConcatenatedBlocks(parts, geometry.block_words))
        calls = [call_of(number, own) for own in segments]
        if storm.random.random() < 0.2:
            sources[-1] = NoBlocks()
            calls[-1] = Call(number, Kind.REFUSED, detail=Reason.NOT_FINITE)
        elif storm.random.random() < 0.1:
            calls[-1] = Call(number + 1, Kind.BARRIER)
        if any(twin.error for twin in storm.collective(sources, calls)):
            return


@pytest.mark.parametrize("stride", [1, 2, 8, 40, 64])
@pytest.mark.parametrize("blocks", [0, 1, 7, 8, 9, 64, 65, 1003])
@pytest.mark.parametrize("held", [0.0, 0.1, 1.0])
def test_both_look_ahead_alike(blocks: int, stride: int, held: float) -> None:
    assert KERNELS is not None
    rng = np.random.default_rng(blocks * stride)
    nonzero, exponents = rng.random(blocks) < held, rng.integers(0, 255, blocks).astype(np.uint8)
    expected = np.array(keys_at_or_after(nonzero, exponents, stride))
    for function in (KERNELS.look_ahead, KERNELS.look_ahead.py_func):
        keys = np.zeros(len(expected), np.uint32)
        function(nonzero, exponents, stride, np.uint32(KEY_NONE), keys)
        assert keys.tolist() == expected.tolist()

"""Seeded random traffic of a job: rounds, duplicates, old frames, frames with every fault, ordinary traffic."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from conformance.case import Arrive, Case, Step, Write, insert
from rigs import wire
from rigs.pipeline import EPOCH, SLOT_COUNT
from rigs.recorded.network import FAULTS, ORDINARY, Network

FIRST_ROUNDS = (0, 0xFFFFFFFD, 0x7FFFFFFE, 1)
"""The first rounds of the slots: two of them pass a wrap of the round number."""


@dataclass
class Slot:
    """A slot as the ranks see it."""

    round: int
    contributed: dict[int, Arrive] = field(default_factory=dict)


class Traffic:
    """Makes one frame after another; the same seed makes the same frames."""

    def __init__(self, network: Network, seed: str, epoch: int = EPOCH) -> None:
        self.network = network
        self.epoch = epoch
        self._source = random.Random(seed)
        self._slots = [Slot(FIRST_ROUNDS[slot % len(FIRST_ROUNDS)]) for slot in range(SLOT_COUNT)]
        self._sent: list[Arrive] = []

    def frames(self, count: int) -> list[Step]:
        return [self._frame() for _ in range(count)]

    def _frame(self) -> Arrive:
        draw = self._source.random()
        if draw < 0.62 or not self._sent:
            return self._contribute()
        if draw < 0.74:
            return self._duplicate()
        if draw < 0.80:
            return self._source.choice(self._sent)
        if draw < 0.92:
            return self._faulty()
        return self._ordinary()

    def _contribute(self) -> Arrive:
        """A rank's frame of its slot's round. A complete round is followed by the next."""
        number = self._source.randrange(SLOT_COUNT)
        slot = self._slots[number]
        if len(slot.contributed) == self.network.world_size:
            slot.round, slot.contributed = slot.round + 1 & 0xFFFFFFFF, {}
        missing = [r for r in range(self.network.world_size) if r not in slot.contributed]
        rank = self._source.choice(missing)
        blocks = {column: self._block() for column in self._columns()}
        frame = self.network.contribution(rank, number, slot.round, self._keys(), blocks, self.epoch)
        slot.contributed[rank] = frame
        self._sent.append(frame)
        return frame

    def _duplicate(self) -> Arrive:
        slot = self._source.choice(self._slots)
        frames = [slot.contributed[rank] for rank in sorted(slot.contributed)] or self._sent[-1:]
        return self._source.choice(frames)

    def _faulty(self) -> Arrive:
        frame = self._source.choice(self._sent)
        port = frame.port if self._source.random() < 0.95 else 40
        return Arrive(port, self._source.choice(list(FAULTS.values()))(self._source, frame.frame))

    def _ordinary(self) -> Arrive:
        rank = self._source.randrange(self.network.world_size)
        return Arrive(self.network.port(rank), self._source.choice(list(ORDINARY.values()))(self._source, rank))

    def _keys(self) -> tuple[int, ...]:
        return tuple(
            wire.KEY_NONE if self._source.random() < 0.2 else self._source.getrandbits(32)
            for _ in range(self.network.geometry.columns)
        )

    def _columns(self) -> set[int]:
        """Any columns; more when there would be fewer than `least_blocks`."""
        columns = range(self.network.geometry.columns)
        chosen = {column for column in columns if self._source.random() < 0.5}
        while len(chosen) < self.network.least_blocks:
            chosen.add(self._source.choice(columns))
        return chosen

    def _block(self) -> bytes:
        """Random words, many of them at the edges of their range."""
        edges = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\0\1")
        return b"".join(
            self._source.choice(edges) if self._source.random() < 0.5 else self._source.randbytes(4)
            for _ in range(self.network.geometry.block_words)
        )


def every_fault(network: Network, seed: str) -> list[Step]:
    """Each fault and each kind of ordinary traffic a few times, each followed by a good frame of the same round."""
    traffic, source = Traffic(network, seed), random.Random(seed + " faults")
    steps: list[Step] = []
    for mutate in FAULTS.values():
        for _ in range(3 if network.geometry_name == "small" else 2):
            good = traffic.frames(1)[0]
            assert isinstance(good, Arrive)
            bad = mutate(source, good.frame)
            steps += [Arrive(good.port, bad), good] if len(good.frame) >= 58 else [good]
    for make in ORDINARY.values():
        steps += [Arrive(network.port(rank), make(source, rank)) for rank in range(network.world_size)]
        steps.append(Arrive(40, make(source, 0)))
    return steps


def cases() -> list[Case]:
    small, default = Network("small", 4), Network("default", 4)
    shared, many, jumbo = Network("small", 6, shared_ports=True), Network("small", 32), Network("jumbo", 2)
    return [
        small.case("p4reduce_small_random", [*written(small), *Traffic(small, "small").frames(1200)]),
        small.case("p4reduce_small_epochs", [*written(small), *_epochs(small)]),
        small.case("p4reduce_small_faults", [*written(small), *every_fault(small, "faults")]),
        shared.case("p4reduce_small_shared_ports", [*written(shared), *Traffic(shared, "shared").frames(300)]),
        many.case("p4reduce_small_32_ranks", [*written(many), *Traffic(many, "many").frames(500)]),
        default.case("p4reduce_default_random", [*written(default), *Traffic(default, "default").frames(700)]),
        default.case("p4reduce_default_faults", [*written(default), *every_fault(default, "faults")]),
        jumbo.case("p4reduce_jumbo_random", [*written(jumbo), *Traffic(jumbo, "jumbo").frames(60)]),
    ]


def written(network: Network) -> list[Step]:
    """Return the controller's writes before the traffic: the switch, then the job."""
    admissions = [network.admission(rank) for rank in range(network.world_size)]
    return [insert(*network.switching()), insert(*network.job()), insert(*admissions)]


def _epochs(network: Network) -> list[Step]:
    """Job after job in the same slots: ranks leave, and all come back in the next epoch."""
    steps: list[Step] = []
    for epoch in range(EPOCH, EPOCH + 5):
        ranks = range(network.world_size)
        if epoch > EPOCH:
            steps.append(insert(*(network.admission(rank, epoch) for rank in ranks)))
        traffic = Traffic(network, f"epoch {epoch}", epoch)
        steps += traffic.frames(80)
        steps.append(Write((("delete", network.admission(1, epoch)),)))
        steps += traffic.frames(20)
        steps.append(Write(tuple(("delete", network.admission(rank, epoch)) for rank in ranks if rank != 1)))
        steps += traffic.frames(5)
    return steps

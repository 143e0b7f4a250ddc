"""Sums of the same values in the same format, made in many ways: do their bits differ? (docs/determinism.md)

    python tests/system/same_bits.py --variations 1000 --seed 1

Each variation is drawn from the seed: over one switch, over several side by side, over a tree of switches, with ranks
that share hosts, in one host's memory without a switch, or through resets of the job; with loss, repetition, delay and
order of frames, slots, window, first round, and which rank has which of the values.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

sys.path.extend(str(Path(__file__).resolve().parents[2] / tests) for tests in ("tests", "softswitch/tests"))

from p4reduce import Communicator, collectives
from p4reduce.codecs.arrays import Tensor
from p4reduce.collectives import Contribution
from p4reduce.testing.local_group import LocalGroup
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce.testing.world import Member, NetworkConditions, RootSwitches, World
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch, Level
from p4reduce_contracts.wire.geometry import DEFAULT
from rigs.cut_runs import CutGroup
from rigs.host_group import HostGroup
from rigs.launched import OneHost
from rigs.pipeline import JOB, SLOT_COUNT
from rigs.secret import rank_secrets
from rigs.tree import Shape, TreeRig

RANKS = 6
SIZE = 1_500

TREES: dict[str, Shape] = {
    "two racks": [[0, 1, 2], [3, 4, 5]],
    "a rack of one": [[0], [1, 2, 3, 4, 5]],
    "three racks": [[0, 5], [1, 4], [2, 3]],
    "racks of racks": [[[0, 1], [2]], [[3], [4, 5]]],
}


@dataclass(frozen=True)
class Case:
    """Values of each rank, [RANKS] tensors, and the bits of a number on the way."""

    name: str
    values: Sequence[Tensor]
    bits: int | None = None

    def contribution(self, lease: Lease, values: Tensor) -> Contribution:
        return collectives.all_reduce(collectives.Plans(), lease, values, None, self.bits)


def cases() -> list[Case]:
    """Return tensors of normal numbers of many magnitudes, half of whose blocks are zero, and integers that wrap."""
    rng = np.random.default_rng(37)
    floats = []
    for _ in range(RANKS):
        numbers = rng.normal(size=SIZE) * 2.0 ** rng.integers(-20, 20, SIZE)
        floats.append((numbers * np.repeat(rng.random(-(-SIZE // 32)) < 0.5, 32)[:SIZE]).astype(np.float32))
    integers = [rng.integers(-(2**31), 2**31, SIZE).astype(np.int32) for _ in range(RANKS)]
    return [
        Case("float32 in 32 bits", floats),
        Case("float32 in 16 bits", floats, 16),
        Case("float32 in 8 bits", floats, 8),
        Case("bfloat16", [torch.from_numpy(values).bfloat16() for values in floats]),
        Case("few float32, in one shot on one host", [values[:600] for values in floats]),
        Case("int32", integers),
    ]


@dataclass(frozen=True)
class Drawn:
    """A variation: its own source of numbers, and which of the values each rank has."""

    random: random.Random
    order: Sequence[int]

    def number(self, first: int, last: int) -> int:
        return self.random.randint(first, last)


def bits_of(total: Tensor) -> bytes:
    return total.view(torch.int16).numpy().tobytes() if isinstance(total, torch.Tensor) else total.tobytes()


def sums_of_group(case: Case, drawn: Drawn, group: LocalGroup) -> list[bytes]:
    def run(comm: Communicator) -> bytes:
        total = comm.all_reduce(case.values[drawn.order[comm.rank]], bits=case.bits)  # type: ignore[arg-type]
        comm.close()  # one of the others may lack the result after a reset
        return bits_of(total)

    with group:
        return group.run(run)


def through_network(
    case: Case,
    drawn: Drawn,
    switches: Any,
    slots: int,
    epoch: int,
    levels: Callable[[int], tuple[Level, ...]],
    secrets: Sequence[Sequence[int]] = (rank_secrets(RANKS),),
) -> list[bytes]:
    """Return the sums over switches whose links lose, repeat, delay and reorder frames."""
    first = drawn.random.choice([0, 1, 2**32 - 2])
    opened = drawn.random.choice([None, 1, drawn.number(1, slots)])
    contributions, members = [], []
    for rank in range(RANKS):
        lease = Lease(
            *(JOB, "same bits", epoch, rank, RANKS, slots, DEFAULT.columns, DEFAULT.block_words),
            switches=tuple(LeasedSwitch(secret=of_ranks[rank], levels=levels(rank)) for of_ranks in secrets),
        )
        one = case.contribution(lease, case.values[drawn.order[rank]])
        contributions.append(one)
        members.append(Member(lease, [(one.blocks, one.call())], [first] * slots, slots=opened))
    conditions = NetworkConditions(
        drop=drawn.random.choice([0.0, 0.02, 0.2]),
        duplicate=drawn.random.choice([0.0, 0.1]),
        late=drawn.random.choice([0.0, 0.05]),
        late_s=0.5,
        jitter=drawn.random.choice([0.0, 0.5, 1.0]),
        frame_s=drawn.random.choice([0.0, 1e-4]),
        start_s=drawn.random.choice([0.0, 0.05, 1.0]),
    )
    results = World(switches, members, conditions, drawn.random.getrandbits(32)).run(1_000_000)
    return [bits_of(one.finish(calls[0])) for one, calls in zip(contributions, results, strict=True)]


def one_switch(case: Case, drawn: Drawn) -> list[bytes]:
    slots, epoch = drawn.number(1, 64), drawn.number(1, 2**16 - 1)
    switch = ReferenceSwitch(DEFAULT, slots)
    switch.add_job(JOB, epoch, RANKS, 0, slots, rank_secrets(RANKS))
    return through_network(case, drawn, RootSwitches(switch), slots, epoch, lambda rank: ())


def side_by_side(case: Case, drawn: Drawn) -> list[bytes]:
    """Over 2 to 5 switches side by side."""
    slots, epoch = drawn.number(1, 24), drawn.number(1, 2**16 - 1)
    secrets = [[number << 32 | rank for rank in range(RANKS)] for number in range(drawn.number(2, 5))]
    sides = [ReferenceSwitch(DEFAULT, slots) for _ in secrets]
    for side, of_ranks in zip(sides, secrets, strict=True):
        side.add_job(JOB, epoch, RANKS, 0, slots, of_ranks)
    return through_network(case, drawn, RootSwitches(*sides), slots * len(secrets), epoch, lambda rank: (), secrets)


_epochs = itertools.count(1)


@cache
def tree(name: str) -> TreeRig:
    return TreeRig("default", TREES[name], epoch=0)


def several_switches(case: Case, drawn: Drawn) -> list[bytes]:
    """Over compiled programs in racks."""
    rig, epoch = tree(drawn.random.choice(list(TREES))), next(_epochs)
    rig.renew(epoch)
    return through_network(case, drawn, rig, drawn.number(1, SLOT_COUNT), epoch, rig.levels)


def shared_hosts(case: Case, drawn: Drawn) -> list[bytes]:
    """The ranks of a host add in its memory."""
    placement = [drawn.number(0, drawn.number(0, RANKS - 1)) for _ in range(RANKS)]
    losing, chance = random.Random(drawn.random.random()), drawn.random.choice([0.0, 0.0, 0.05])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("p4reduce.paths.switch.SwitchPath.least_host_bytes", 1)
        group = HostGroup(
            patch, placement, slots=drawn.number(1, 64), lose=lambda rank, payload: losing.random() < chance
        )
        return sums_of_group(case, drawn, group)


def one_host(case: Case, drawn: Drawn) -> list[bytes]:
    """All ranks add in the memory of their host, without a switch."""
    return sums_of_group(case, drawn, OneHost(RANKS))


def resets(case: Case, drawn: Drawn) -> list[bytes]:
    """The switches forget the job at some of their first answers; all ranks join it again, over 1 to 4 switches."""
    cuts = {drawn.number(0, 150) for _ in range(drawn.number(1, 3))}
    numbers = [drawn.number(1, 4) for _ in range(4)]
    group = CutGroup(
        RANKS, cuts, geometry=DEFAULT, slots=drawn.number(1, 16), switches_of=lambda epoch: numbers[epoch % 4]
    )
    return sums_of_group(case, drawn, group)


WAYS = (one_switch, side_by_side, several_switches, shared_hosts, one_host, resets)


def plain(case: Case) -> bytes:
    """Return the bits of the sum that all ranks have over one switch."""
    (expected,) = set(sums_of_group(case, Drawn(random.Random(0), range(RANKS)), LocalGroup(RANKS)))
    return expected


def variations(case: Case, count: int, seed: int, expected: bytes) -> Iterator[tuple[str, str]]:
    """Yield each variation's way, and what describes it if some rank's bits differ, else ""."""
    for number in range(count):
        source = random.Random(f"{seed} {case.name} {number}")
        drawn = Drawn(source, source.sample(range(RANKS), RANKS))
        way = WAYS[number % len(WAYS)]
        different = [rank for rank, bits in enumerate(way(case, drawn)) if bits != expected]
        yield way.__name__, f"{case.name}, seed {seed}, variation {number}: ranks {different}" if different else ""


def main(arguments: Any = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variations", type=int, default=1_000, help="of each tensor")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    logging.disable()  # of ranks that join again
    found: list[str] = []
    for case in cases():
        ways: Counter[str] = Counter()
        for way, difference in variations(case, options.variations, options.seed, plain(case)):
            ways[way] += 1
            found += [difference] if difference else []
        made = ", ".join(f"{count} {way.replace('_', ' ')}" for way, count in ways.items())
        print(f"{case.name}: {made}; {sum(case.name in one for one in found)} with other bits", flush=True)
    for one in found:
        print(one)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())

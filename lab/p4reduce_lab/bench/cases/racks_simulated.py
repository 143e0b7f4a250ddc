"""All-reduces of 2 to 1,024 ranks over one switch and over racks, in virtual time (p4reduce.testing.world)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs import Floats
from p4reduce.protocol.call import Call, CodecId, Kind
from p4reduce.protocol.rtt import RoundTrip
from p4reduce.testing.world import Member, NetworkConditions, World
from p4reduce_controller.registry.slots import DEFAULT_SLOTS
from p4reduce_lab.bench.case import Case, Run, Series
from p4reduce_lab.bench.rack_programs import ROOT, RackPrograms
from p4reduce_runtime.datagrams import ENCAP_BYTES

RACKS: Final = {
    "one switch": (32, (2, 8, 32)),
    "racks of 8": (8, (16, 64, 256)),
    "racks of 16": (16, (32, 128, 512)),
    "racks of 32": (32, (64, 256, 1024)),
}
"""Ranks a rack, and of the whole job."""
QUICK_RANKS: Final = 64
KB: Final = 256
"""Of the tensor, where the number of ranks is what varies."""
SHAPE_RANKS, SHAPE_RACK, SHAPE_KB = 64, 16, 512
RATES, QUICK_RATES = (1e9, 10e9, 100e9), (10e9,)
OVERSUBSCRIPTIONS, LOSSES, DENSITIES = (1.0, 8.0), (0.0, 0.001), (1.0, 0.01)
SEEDS: Final = 3
WIRE_OVERHEAD_BYTES: Final = ENCAP_BYTES + 4 + 20
"""Of a frame: Ethernet, IPv4 and UDP headers, frame check sequence, preamble and the gap to the next one."""
_MOST_EVENTS: Final = 10**9
Array32 = NDArray[np.float32]
_BLOCK: Final = 32
SIMULATED: Final = "p4reduce, simulated"


@dataclass(frozen=True)
class Links:
    """What the links are like: each direction of each link on its own."""

    rank_bits_per_s: float
    oversubscription: float = 1.0
    """The rate of a rack's ranks together over that of its trunk."""
    delay_s: float = 1e-6
    """Of one link, one way."""
    loss: float = 0.0
    """The share of the frames that each link loses."""

    def conditions(self, rack: int) -> NetworkConditions:
        """Return them for racks of so many ranks; links have room for all frames that wait."""
        return NetworkConditions(
            drop=self.loss,
            delay_s=self.delay_s / 1.1,  # without jitter the world delays by 1.1 of it
            jitter=0.0,
            bits_per_s=self.rank_bits_per_s,
            trunk_bits_per_s=rack * self.rank_bits_per_s / self.oversubscription,
            overhead_bytes=WIRE_OVERHEAD_BYTES,
            burst_bytes=0,
            start_s=0.0,
        )


_USUAL: Final = Links(10e9)


@dataclass(frozen=True)
class Outcome:
    """What one collective took."""

    seconds: float
    """From its call on all ranks until the last rank has the result."""
    rank_bytes_up: int
    """On the wire, of one rank on average."""
    rank_bytes_down: int
    trunk_bytes_up: int
    """On the wire, of one trunk on average; 0 without trunks."""
    trunk_bytes_down: int
    retransmissions: int


class Simulation:
    """A job over a tree of switches. `racks`: by rack, its ranks; one rack is one switch, without trunks."""

    def __init__(self, racks: Sequence[Sequence[int]], links: Links, *, seed: int = 0) -> None:
        self.programs = RackPrograms(racks)
        self.world_size = len(self.programs.leases)
        self._conditions, self._seed = links.conditions(len(racks[0])), seed
        self._rounds = [[0] * DEFAULT_SLOTS for _ in range(self.world_size)]
        self._round_trips = [RoundTrip() for _ in range(self.world_size)]
        self._operations = 0

    def all_reduce(self, tensors: Sequence[Array32]) -> tuple[Outcome, list[Array32]]:
        """Run one all-reduce of the ranks' tensors; return what it took, and each rank's result."""
        members = []
        for lease, tensor, rounds, round_trip in zip(
            self.programs.leases, tensors, self._rounds, self._round_trips, strict=True
        ):
            source = Floats(tensor.copy()).bind(lease.world_size, lease.block_words, False)
            call = Call(self._operations, Kind.ALL_REDUCE, CodecId.FLOAT32, 0, tensor.size)
            members.append(Member(lease, [(source, call)], rounds, round_trip=round_trip))
        self._operations += 1
        world = World(self.programs, members, self._conditions, self._seed + self._operations)
        results = world.run(_MOST_EVENTS)
        up, down, trunk_up, trunk_down = 0, 0, 0, 0
        for (origin, target), payload in world.bytes.items():
            size = payload + WIRE_OVERHEAD_BYTES * world.frames[origin, target]
            up += size * (origin < 0)
            down += size * (target < 0)
            trunk_up += size * (origin > target >= ROOT)
            trunk_down += size * (target > origin >= ROOT)
        trunks = max(1, len(self.programs.racks))
        outcome = Outcome(
            world.first_end,
            up // self.world_size,
            down // self.world_size,
            trunk_up // trunks,
            trunk_down // trunks,
            sum(member.stats.retransmissions for member in members),
        )
        return outcome, [result[0] for [result] in results]


def measure(run: Run) -> None:
    """Simulate against the number of ranks, and then against what the links are like."""
    for label, (rack, jobs) in RACKS.items():
        for ranks in jobs:
            if ranks <= QUICK_RANKS or not run.quick:
                _against_ranks(run, label, ranks, rack)
    for rate in QUICK_RATES if run.quick else RATES:
        for density in DENSITIES:
            for oversubscription in OVERSUBSCRIPTIONS:
                for loss in LOSSES:
                    _against_links(run, Links(rate, oversubscription, loss=loss), density)
    run.note(
        "Simulated: the network and the clock. Real: every frame is made by the worker's engine and run through the "
        "compiled program. Ranks and switches take no time in it. The formulas are for messages that fill the link, "
        "without headers, over a network that is nowhere oversubscribed."
    )


def _against_ranks(run: Run, label: str, ranks: int, rack: int) -> None:
    simulation = Simulation(_racks(ranks, rack), _USUAL)
    outcome = _simulate(simulation, KB, 1.0, 1)
    at: dict[str, float | str] = {"simulated ranks": ranks, "racks": label}
    what, link = f"{KB} KB, {ranks} ranks, {label}", _words(_USUAL, racks=label != "one switch")
    counted = _counted(outcome)
    counted["switch CPU us a frame"] = simulation.programs.cpu_s / simulation.programs.frames * 1e6
    counted["register MB a switch"] = simulation.programs.register_bytes / 1e6
    run.add(Series(what, SIMULATED, link, "ms", [1e3 * outcome.seconds], at, counted, 1024 * KB, ranks))
    for name, seconds in _formulas(1024 * KB, ranks, _USUAL, 2 if label == "one switch" else 4).items():
        run.add(Series(what, f"{name}, formula", link, "ms", [1e3 * seconds], {**at, "racks": ""}))


def _against_links(run: Run, links: Links, density: float) -> None:
    found = [
        _simulate(Simulation(_racks(SHAPE_RANKS, SHAPE_RACK), links, seed=seed), SHAPE_KB, density, seed)
        for seed in range(1 if not links.loss else SEEDS)
    ]
    middle = sorted(found, key=lambda one: one.seconds)[len(found) // 2]
    blocks = "dense" if density == 1 else f"{100 * density:g} % of blocks, at random on each rank"
    what = f"{SHAPE_KB} KB, {SHAPE_RANKS} ranks in racks of {SHAPE_RACK}, {blocks}"
    values = [1e3 * one.seconds for one in found]
    run.add(Series(what, SIMULATED, _words(links, racks=True), "ms", values, {}, _counted(middle)))


def _simulate(simulation: Simulation, kilobytes: int, density: float, seed: int) -> Outcome:
    """Run two all-reduces, so that the ranks know their round times, and check both; return what the second took."""
    numbers = np.random.default_rng(seed)
    tensors = [_tensor(numbers, 256 * kilobytes, density) for _ in range(simulation.world_size)]
    exact: NDArray[np.float64] = np.sum(tensors, axis=0, dtype=np.float64)
    for _ in range(2):
        outcome, results = simulation.all_reduce(tensors)
        _check(results, exact, simulation.world_size)
    return outcome


def _tensor(numbers: np.random.Generator, elements: int, density: float) -> NDArray[np.float32]:
    tensor = numbers.standard_normal(elements, np.float32)
    if density < 1:
        tensor.reshape(-1, _BLOCK)[numbers.random(elements // _BLOCK) >= density] = 0
    return tensor


def _check(results: list[NDArray[np.float32]], exact: NDArray[np.float64], ranks: int) -> None:
    """All ranks have the same numbers, within the format's error (docs/protocol.md)."""
    if any(not np.array_equal(results[0], result) for result in results):
        raise AssertionError("the ranks have different sums")
    bound = ranks / 2 * 2.0 ** (3 - 30 + math.ceil(math.log2(ranks)))  # normal numbers are below 2^3
    if (worst := float(np.abs(results[0] - exact).max())) > bound + 1e-5 * float(np.abs(exact).max()):
        raise AssertionError(f"a sum is wrong by {worst}")


def _formulas(size: int, ranks: int, links: Links, hops: int) -> dict[str, float]:
    """Seconds of other all-reduces by their usual formulas: steps of `hops` links' delay, and bytes over the rate."""
    step, transfer, halvings = hops * links.delay_s, 8 * size / links.rank_bits_per_s, math.ceil(math.log2(ranks))
    return {
        "ring": 2 * (ranks - 1) * (step + transfer / ranks),
        "binary tree": 2 * halvings * (step + transfer),
        "halving-doubling": 2 * halvings * step + 2 * (ranks - 1) / ranks * transfer,
        "the link's limit": transfer,
    }


def _counted(outcome: Outcome) -> dict[str, float]:
    counted = {"KB up a rank": outcome.rank_bytes_up / 1024, "KB down a rank": outcome.rank_bytes_down / 1024}
    if outcome.trunk_bytes_up:
        counted |= {"KB up a trunk": outcome.trunk_bytes_up / 1024, "KB down a trunk": outcome.trunk_bytes_down / 1024}
    return counted | {"retransmissions": float(outcome.retransmissions)}


def _words(links: Links, *, racks: bool) -> str:
    text = f"{links.rank_bits_per_s / 1e9:g} Gbit/s, {1e6 * links.delay_s:g} us a link"
    if racks:
        text += f", trunks 1:{links.oversubscription:g}"
    return text + (f", {100 * links.loss:g} % loss a link" if links.loss else "")


def _racks(ranks: int, rack: int) -> list[range]:
    return [range(first, min(ranks, first + rack)) for first in range(0, ranks, rack)]


CASE = Case(
    "racks-simulated",
    "all-reduces of 2 to 1,024 ranks over one switch and over racks, in virtual time",
    measure,
    limit_s=1200.0,
)

"""Rows: a sum, another collective or a training step, with link, ranks, place of the switches, and peers in turn."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from statistics import median
from typing import Final, Literal

from p4reduce.doctor.bottleneck import framed, host_tensors
from p4reduce_contracts.wire.geometry import DEFAULT
from p4reduce_lab.bench.case import OPEN_MPI, Run, Series, Threshold, on_two_cores
from p4reduce_lab.bench.cluster import CPU, IN_BRIDGE, Cluster, Counts, Placement, running_cluster
from p4reduce_lab.bench.links import Link

MEGABYTE: Final = 1 << 20
FLOAT_BYTES: Final = 4
STEPS: Final = 4
"""Steps of a training, before it is measured and in one turn."""
BACKEND = "backend p4reduce"
_QUICK_BYTES = 8 * MEGABYTE
TENSOR: Final = "tensor"
"""In a ratio: the bytes of the tensor."""
_COUNTED: Final = {"CPU": (CPU, 1e6), "bytes up": ("B up a worker", 1.0), "bytes down": ("B down a worker", 1.0)}
"""What ratios name of a peer, as "CPU of gloo", its name in a series, and how many of the unit are 1."""
STEP: Final = 0
"""What a row of training steps has in place of a size."""
_ITEM_BYTES: Final = {"float32": FLOAT_BYTES, "bfloat16": 2}
_COUNTED_BYTES: Final = 8 * MEGABYTE
"""Bytes of the tensor that is summed while the links count."""
_NEAR_FORMULA: Final = 1 / 1.03
"""What formula / counted and counted / formula should be at least."""


@dataclass(frozen=True)
class Row:
    """What is measured by several peers in turn."""

    size: int
    """Bytes of a tensor on each rank; STEP: training steps."""
    link: Link
    ranks: int
    at_least: Mapping[str, float] = field(default_factory=dict)
    """Ratio -> what it should be at least: "gloo / p4reduce", of two peers; "30 us / p4reduce"; "60 us / CPU of x".

    Or "tensor / bytes up of x": `_COUNTED` has what can be named of a peer.
    """
    also: tuple[str, ...] = ()
    """Peers without a threshold."""
    ranks_per_host: int = 1
    placement: Placement = IN_BRIDGE
    calls: int = 1
    """Calls in a row in one turn of a peer; of sums the median is taken."""
    limit_s: float = 60.0
    """Seconds after which no further turn is begun."""
    collective: str = "all_reduce"
    """The collective; another one than all_reduce, and another dtype than float32, is by process groups alone."""
    dtype: str = "float32"
    quick: bool | Literal["thresholds"] = True
    """Whether a quick run measures it; "thresholds": without the peers of `also`."""
    bytes_on_links: bool = False
    """Whether the bytes on each link in a dense sum are compared with the formulas of doctor/bottleneck.py."""

    def what(self, size: int) -> str:
        """Return the conditions, but for the link, of a tensor of so many bytes."""
        unit, divisor = ("MB", MEGABYTE) if size >= MEGABYTE else ("KB", 1 << 10) if size % 1024 == 0 else ("B", 1)
        text = f"{size // divisor:,} {unit}" if size else "a training step"
        if self._by_groups_alone:
            text = f"{self.collective} of {text} of {self.dtype}"
        if not self.link.on_loopback:
            hosts = f"{self.ranks // self.ranks_per_host} hosts of {self.ranks_per_host}"
            return f"{text}, {hosts}, {self.placement.name}"
        place = "a switch on loopback" if self.ranks_per_host == 1 else "the host's memory"
        return f"{text}, 1 host of {self.ranks}, {'no switch' if self.placement.of_launch else place}"

    @property
    def thresholds(self) -> list[Threshold]:
        """A threshold for each ratio, and that of the bytes on links."""
        found = [Threshold(self._title(ratio), least) for ratio, least in self.at_least.items()]
        return [*found, Threshold(self._bytes_title, _NEAR_FORMULA)] if self.bytes_on_links else found

    def _title(self, ratio: str) -> str:
        return f"{self.what(self.size)}{'' if self.link.on_loopback else f', {self.link.name}'}: {ratio}"

    @property
    def _bytes_title(self) -> str:
        hosts = self.ranks // self.ranks_per_host
        return f"{self.placement.name}, {hosts} hosts: bytes on a link, formula and counted"

    @property
    def peers(self) -> list[str]:
        """The peers that are measured, in a sum gloo first."""
        named = [name.rpartition(" of ")[2] for ratio in self.at_least for name in ratio.split(" / ")]
        those = [name for name in named if name != TENSOR and not name.endswith(" us")]
        first = ["gloo", BACKEND] if self._by_groups_alone else ["gloo", OPEN_MPI] if self.size else []
        return list(dict.fromkeys([*first, *those, *self.also]))

    @property
    def _by_groups_alone(self) -> bool:
        return (self.collective, self.dtype) != ("all_reduce", "float32")

    def measure(self, cluster: Cluster) -> None:
        """Measure all peers in turn on the cluster's link, and add series and ratios."""
        found = self._sums(cluster) if self.size else self._steps(cluster)
        for ratio in self.at_least:
            above, below = (self._values(cluster.run, name, found) for name in ratio.split(" / "))
            cluster.run.ratio(self._title(ratio), above, below)
        if self.bytes_on_links:
            self._compare_bytes_on_links(cluster)

    def _compare_bytes_on_links(self, cluster: Cluster) -> None:
        """Compare the bytes that each link carries each way in one dense sum with the formula."""
        network, placement = cluster.network, self.placement
        hosts, servers = len(network.hosts), len(network.servers)
        switches, beside = (hosts, 1) if placement.on_each_host else (servers or 1, 0)
        tensors = [host_tensors(hosts, switches, beside)] * hosts + [hosts / switches] * servers
        tensor_bytes, worst = framed(DEFAULT) * _COUNTED_BYTES, 1.0
        before = network.carried()
        cluster.all_reduce("p4reduce", _COUNTED_BYTES // FLOAT_BYTES)
        counted = zip(tensors, before, network.carried(), strict=True)
        for number, (expected, earlier, later) in enumerate(counted):
            up, down = ((after - first) / tensor_bytes for first, after in zip(earlier, later, strict=True))
            cluster.run.say(f"link {number}: {up:.3f} tensors up, {down:.3f} down; the formula has {expected:g}")
            worst = min(worst, *(min(way / expected, expected / way) for way in (up, down)))
        cluster.run.ratio(self._bytes_title, [worst], [1.0])

    def _sums(self, cluster: Cluster) -> Mapping[str, list[float]]:
        """Measure the collective of all peers, each after a checked one; return the seconds of each."""
        run, calls = cluster.run, self.calls
        size = min(self.size, _QUICK_BYTES) if run.quick else self.size
        elements = size // _ITEM_BYTES[self.dtype]
        check, cores = size <= MEGABYTE, len(os.sched_getaffinity(0))
        peers: dict[str, Callable[[Counts], float]] = {}
        for peer in self.peers:
            if self._by_groups_alone:
                peers[peer] = partial(
                    cluster.timed,
                    "collective",
                    peer=peer,
                    name=self.collective,
                    elements=elements,
                    dtype=self.dtype,
                    calls=calls,
                )
                peers[peer]({})
            elif peer != OPEN_MPI or cluster.mpi is not None:
                peers[peer] = partial(cluster.all_reduce, peer, elements, calls=calls, check=check)
                cluster.all_reduce(peer, elements, check=True)
        bound = self.link.on_loopback and self.placement.of_launch and self.ranks <= cores
        what = f"{self.what(size)}, {'a core for each rank' if bound else f'{cores} cores'}"
        turns = 2 * run.repetitions if calls > 1 else 0
        return self._in_turn(cluster, what, peers, size if self.collective == "all_reduce" else 0, turns)

    def _steps(self, cluster: Cluster) -> Mapping[str, list[float]]:
        """Measure a training step of each peer; return the seconds of a step."""
        for peer in self.peers:
            parameters = cluster.ask("begin_training", peer=peer)[0]["parameters"]
            cluster.ask("continue_training", peer=peer, steps=STEPS, apart=True)

        def step(peer: str, counts: Counts) -> float:
            return cluster.timed("continue_training", counts, peer=peer, steps=self.calls, apart=True) / self.calls

        what = f"a step of {parameters:,} parameters, {self.ranks} workers, {self.placement.name}"
        return self._in_turn(cluster, what, {peer: partial(step, peer) for peer in self.peers})

    def _in_turn(
        self, cluster: Cluster, what: str, peers: Mapping[str, Callable[[Counts], float]], size: int = 0, turns: int = 0
    ) -> dict[str, list[float]]:
        """Measure each peer in turn, and add its series; return seconds by peer.

        A peer is called with a dictionary for its counts, as `Cluster.timed` fills it. `size`: bytes of a tensor that
        is summed. `turns`: 0 for the run's repetitions.
        """
        run, rate = cluster.run, cluster.link.rate_mbit
        counts: dict[str, Counts] = {peer: {} for peer in peers}
        calls = {peer: partial(call, counts[peer]) for peer, call in peers.items()}
        found = run.in_turn(calls, turns=turns, limit_s=self.limit_s, at_least=3)
        for peer, seconds in found.items():
            counted = {
                name: median(values) / (1 if name.endswith("a frame") else self.calls)
                for name, values in counts[peer].items()
            }
            if size and rate:
                counted["% of the link"] = 100 * 8 * size / median(seconds) / 1e6 / rate
            milliseconds, ranks = [1000 * second for second in seconds], self.ranks if size else 0
            run.add(Series(what, peer, str(cluster.link), "ms", milliseconds, {}, counted, size, ranks))
        return found

    def _values(self, run: Run, name: str, found: Mapping[str, list[float]]) -> list[float]:
        if name.endswith(" us"):
            return [float(name.removesuffix(" us")) / 1e6]
        if name in found:
            return found[name]
        count, _, peer = name.rpartition(" of ")
        series = next(each for each in reversed(run.findings.series) if name == TENSOR or each.peer == peer)
        if name == TENSOR:
            return [series.size]
        counted, units = _COUNTED[count]
        return [series.counted[counted] / units]


def measure_rows(run: Run, rows: Iterable[Row], two_cores: bool = False) -> None:
    """Measure rows, those that follow each other with the same ranks and switches on one cluster.

    A rank finds out once how long its runs of frames may be, so another burst takes another cluster.
    """
    wanted = [row for row in rows if row.quick or not run.quick]
    if run.quick:
        wanted = [replace(row, also=()) if row.quick == "thresholds" else row for row in wanted]
    with on_two_cores() if two_cores else nullcontext():
        for _, (row, *others) in ((key, list(group)) for key, group in groupby(wanted, _cluster_of)):
            place = row.link, row.ranks, row.ranks_per_host
            if not row.link.on_loopback and not run.networks:
                run.skip(row.what(row.size), "that takes root")
                continue
            with running_cluster(run, *place, placement=row.placement, mpi=row.size != STEP) as cluster:
                for one in (row, *others):
                    if one.link != cluster.link:
                        cluster.shape(one.link)
                    one.measure(cluster)


def _cluster_of(row: Row) -> tuple[bool, int, int, int, Placement]:
    return row.link.on_loopback, row.link.burst_bytes, row.ranks, row.ranks_per_host, row.placement


def thresholds(rows: Iterable[Row]) -> tuple[Threshold, ...]:
    """Return those of all rows."""
    return tuple(threshold for row in rows for threshold in row.thresholds)

"""A case, and its results: series of repeated measurements, and the ratios that thresholds are about."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import median

from p4reduce_lab.processes import Children
from p4reduce_lab.training import INSTALL, NEEDED, missing_packages

OPEN_MPI = "Open MPI"
COMMUNICATOR = "Communicator.all_reduce"
"""Peers' names, in requests and results."""
REPETITIONS = 5
"""The fewest measurements for a median of a threshold."""
QUICK_REPETITIONS = 3


@dataclass(frozen=True)
class Need:
    """Something that a case requires."""

    what: str
    there: Callable[[], bool] = field(compare=False)


@cache
def _can_build_networks() -> bool:
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in ("ip", "tc", "unshare", "nsenter")):
        return False
    made = subprocess.run(["unshare", "--net", "--", "true"], capture_output=True)  # not in all containers
    return made.returncode == 0


NETWORKS = Need(
    "root that may make network namespaces, and ip, tc (iproute2), unshare and nsenter (util-linux) on PATH",
    _can_build_networks,
)
TRAINING_PACKAGES = Need(f"{', '.join(NEEDED)}; {INSTALL}", lambda: not missing_packages())


@contextmanager
def on_two_cores() -> Iterator[None]:
    """Keep this process, and those that it starts in the block, on two processor cores."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:2])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@dataclass(frozen=True)
class Threshold:
    """A ratio that a case measures, and what it should be at least."""

    name: str
    at_least: float


@dataclass(frozen=True)
class Series:
    """One thing measured again and again."""

    what: str
    """The conditions, as "4 MB, 4 workers"."""
    peer: str
    """The name of the program that was measured: "gloo", "p4reduce", "llvm"."""
    link: str
    """The link with its shaper, or "in one process"."""
    unit: str
    values: list[float]
    at: dict[str, float | str] = field(default_factory=dict)
    """What the series is of, for programs: {"variant": "gloo"}."""
    counted: dict[str, float] = field(default_factory=dict)
    """Medians of what was counted during the measurements, by name with unit."""
    size: int = 0
    """Bytes of the tensor that each rank gives to an all-reduce measured in ms; 0: the series is of something else."""
    ranks: int = 0
    """Ranks of that all-reduce."""

    @property
    def algbw(self) -> float:
        """The algorithm bandwidth as in nccl-tests, in GB/s (10^9 bytes): the size over the median time."""
        return self.size / median(self.values) / 1e6

    @property
    def busbw(self) -> float:
        """The bus bandwidth as in nccl-tests, in GB/s: algbw times 2(n - 1)/n, what a ring all-reduce moves.

        It makes all-reduces of different numbers of ranks comparable; it is not what a switch's link carries.
        """
        return self.algbw * 2 * (self.ranks - 1) / self.ranks

    @property
    def text(self) -> str:
        """Return it as a line of text."""
        low, high = min(self.values), max(self.values)
        words = f"{self.what}, {self.link}: {self.peer} {show(median(self.values))} {self.unit}"
        words += f" ({show(low)} to {show(high)}, {len(self.values)} x)"
        if self.size:
            words += f", algbw {show(self.algbw)} busbw {show(self.busbw)} GB/s"
        return words + "".join(f", {name} {show(value)}" for name, value in self.counted.items())


@dataclass
class Findings:
    """The findings of a case."""

    series: list[Series] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
    """The measured ratios, by the name of the threshold."""
    skipped: dict[str, str] = field(default_factory=dict)
    """The measurements that were left out, with the reason."""
    notes: list[str] = field(default_factory=list)
    curves: dict[str, list[list[tuple[float, float]]]] = field(default_factory=dict)
    """Seconds and quality at each test of each training, by variant."""


@dataclass
class Run:
    """One run of one case: what it may use, and its findings."""

    quick: bool
    folder: Path
    """The folder for logs and other files."""
    children: Children
    findings: Findings = field(default_factory=Findings)
    networks: bool = field(default_factory=lambda: NETWORKS.there())
    """Whether it may build network namespaces: this process is then alone in its own."""

    @property
    def repetitions(self) -> int:
        """Number of measurements of each thing."""
        return QUICK_REPETITIONS if self.quick else REPETITIONS

    def say(self, text: str) -> None:
        """Print a line of progress."""
        print(text, flush=True)

    def add(self, series: Series) -> Series:
        """Append a series to the findings."""
        self.findings.series.append(series)
        self.say(series.text)
        return series

    def ratio(self, name: str, above: Sequence[float], below: Sequence[float]) -> None:
        """Add the ratio of a threshold, of the medians."""
        self.findings.ratios[name] = median(above) / median(below)
        self.say(f"{name}: {self.findings.ratios[name]:.3g}")

    def in_turn(
        self,
        peers: Mapping[str, Callable[[], float]],
        *,
        turns: int = 0,
        limit_s: float = float("inf"),
        at_least: int = 1,
    ) -> dict[str, list[float]]:
        """Measure each peer once, then each again; what is noisy is noisy for all. `turns`: 0 for `repetitions`.

        After `limit_s` no further turn is begun, once there are `at_least`. Returns by name what each call returned.
        """
        found: dict[str, list[float]] = {name: [] for name in peers}
        began = time.monotonic()
        for turn in range(turns or self.repetitions):
            if turn >= at_least and time.monotonic() - began > limit_s:
                break
            for name, measure in peers.items():
                found[name].append(measure())
        return found

    def skip(self, what: str, why: str) -> None:
        """Record that something is not measured, and why."""
        if self.findings.skipped.get(what) != why:
            self.findings.skipped[what] = why
            self.say(f"{what} is not measured: {why}")

    def note(self, text: str) -> None:
        """Add a remark that belongs beside the figures."""
        if text not in self.findings.notes:
            self.findings.notes.append(text)
            self.say(text)


@dataclass(frozen=True)
class Case:
    """One measurement of the benchmark."""

    name: str
    about: str
    measure: Callable[[Run], None]
    needs: tuple[Need, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    limit_s: float = 420.0
    prepare: Callable[[Path], None] = lambda out: None
    """What is done before, with the machine's own network, in the folder of all results. May raise LabError."""

    def missing(self) -> list[str]:
        """Return which of its needs are not met here."""
        return [need.what for need in self.needs if not need.there()]


def show(value: float) -> str:
    """Write a number with about three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"

"""Collectives of a range of sizes over the running switch, in the columns and the JSON (version 3) of nccl-tests.

Every rank of a launch (torchrun, Slurm) runs it. One iteration is timed at a time, from a barrier on until the rank has
its result, as nccl-tests does with `-z 3`: in between each rank's tensors get their first numbers again, since sums of
sums would overflow. A row's time is the mean over iterations and ranks. The formats are those of nccl-tests a0b82b2
(src/util.cu), algbw and busbw those of its doc/PERFORMANCE.md. An `all_reduce` of torch.distributed is always in place,
so its other half stays empty, as nccl-tests leaves it (`out_of_place` is null).
"""

from __future__ import annotations

import datetime
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist

from p4reduce.doctor.bottleneck import framed, host_tensors, switches_beside
from p4reduce.pytorch.backend.options import BACKEND
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_runtime.environment import P4REDUCE_TOKEN

_TYPES: Final = {"float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16, "int32": torch.int32}
"""The types, by nccl-tests' names."""
_ALIGNED_BYTES: Final = 16
"""A rank's part of a reduce_scatter is a multiple of this."""
_PATTERN: Final = np.random.default_rng(1).integers(1, 5, 8191)
"""Every tensor repeats it: sums of up to 64 such integers are exact in every type, and its length is a prime."""
_TIME: Final = "%Y-%m-%d %H:%M:%S"
_HALF: Final = "  {:>7}  {:>6}  {:>6}  {:>6}"
_FRONT: Final = "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}"


@dataclass(frozen=True)
class CollectiveTest:
    """The settings of one launch, by the names of nccl-tests' options."""

    collective: str
    minbytes: int
    maxbytes: int
    stepfactor: int
    iters: int
    warmup_iters: int
    datatype: str
    output_file: str | None
    gloo: bool
    link: float | None = None
    """Mbit/s of the hosts' links each way; None: the least time of a sum is not printed."""

    def sizes(self) -> list[int]:
        """Return the sizes in bytes, as given; `Shape` rounds them."""
        sizes = [self.minbytes]
        while sizes[-1] * self.stepfactor <= self.maxbytes:
            sizes.append(sizes[-1] * self.stepfactor)
        return sizes


@dataclass(frozen=True)
class Shape:
    """The tensors of one row on this rank."""

    collective: str
    rank: int
    ranks: int
    total: int
    """Elements of the longer tensor of a rank."""
    part: int
    """Elements of the shorter tensor of a rank in a reduce_scatter; in an all_reduce all."""
    dtype: torch.dtype

    @classmethod
    def of(cls, collective: str, size: int, dtype: torch.dtype, rank: int, ranks: int) -> Shape:
        """Round `size` bytes down, as nccl-tests does."""
        total = part = size // dtype.itemsize
        if collective == "reduce_scatter":
            aligned = _ALIGNED_BYTES // dtype.itemsize
            part = total // ranks // aligned * aligned
            total = part * ranks
        return cls(collective, rank, ranks, total, part, dtype)

    @property
    def size(self) -> int:
        """Return the bytes in the first column."""
        return self.total * self.dtype.itemsize

    @property
    def mine(self) -> slice:
        """Return where the rank's part lies in the longer tensor."""
        return slice(self.rank * self.part, (self.rank + 1) * self.part)

    def numbers(self, rank: int, length: int) -> torch.Tensor:
        """Return `length` numbers of a rank, the same each time."""
        return torch.from_numpy(np.resize(np.roll(_PATTERN, -rank), length)).to(self.dtype)

    def expected(self) -> torch.Tensor:
        """Return the right result on this rank."""
        summed = np.sum([np.roll(_PATTERN, -rank) for rank in range(self.ranks)], axis=0)
        total = torch.from_numpy(np.resize(summed, self.total)).to(self.dtype)
        return total[self.mine] if self.collective == "reduce_scatter" else total

    def bus_factor(self) -> float:
        """Return busbw / algbw."""
        return (2 if self.collective == "all_reduce" else 1) * (self.ranks - 1) / self.ranks


def least_time(mbit: float, lease: Lease, hosts: int, beside: Sequence[int], size: int) -> str:
    """Return what is printed below the row of `size` bytes: the least time that links of one rate allow such a sum.

    It is one without zeros, over a job's switches where they are. `beside`: number of switches on the host of each
    rank, or on each host.
    """
    switches = len(lease.switches)
    tensors_on_host = max(host_tensors(hosts, switches, number) for number in beside)  # each way, on the fullest link
    tensors_on_switch = hosts / switches  # on the link of a switch that is on no host of ranks

    def microseconds(tensors: float) -> str:
        return f"{8 * size * framed(lease.geometry) * tensors / mbit:.0f} us: {tensors:.3g} x"

    text = f"#  at least {microseconds(tensors_on_host)} the tensor each way on a host's link of {mbit:g} Mbit/s"
    if sum(beside) >= switches or tensors_on_switch <= tensors_on_host:
        return text
    return f"{text}; if a switch has one such link too, {microseconds(tensors_on_switch)}"


@dataclass(frozen=True)
class Figures:
    """One half of a row: out of place, or in place. Its fields have the names of the JSON."""

    time: float
    """Microseconds."""
    alg_bw: float
    """GB/s, as `bus_bw`."""
    bus_bw: float
    nwrong: float

    def columns(self) -> str:
        """Return the four columns."""
        return _HALF.format(_fit(self.time, 7), _fit(self.alg_bw, 6), _fit(self.bus_bw, 6), f"{self.nwrong:g}")


def _fit(value: float, width: int) -> str:
    """Return the number with two, one or no digits behind the point, so that it fits."""
    texts = (f"{value:.{digits}f}" for digits in (2, 1, 0))
    return next((text for text in texts if len(text) <= width), f"{value:.0e}")


def measure(group: Any, barrier: Any, shape: Shape, asked: CollectiveTest, *, in_place: bool) -> Figures:
    """Run the collective of a process group on all ranks at once; the figures are the same on each.

    `barrier` is another group, so that nothing else is on the way of the measured one.
    """
    longer, shorter = torch.empty(shape.total, dtype=shape.dtype), torch.empty(shape.part, dtype=shape.dtype)
    if in_place:
        shorter = longer[shape.mine] if shape.part < shape.total else longer
    first, spent_s = shape.numbers(shape.rank, shape.total), 0.0
    work: Callable[[], Any] = {
        "all_reduce": lambda: group.allreduce([longer]),
        "reduce_scatter": lambda: group._reduce_scatter_base(shorter, longer),
    }[shape.collective]
    for iteration in range(-asked.warmup_iters, asked.iters):
        longer.copy_(first)
        barrier.barrier().wait()
        begun = time.perf_counter()
        work().wait()
        spent_s += time.perf_counter() - begun if iteration >= 0 else 0.0
    wrong = (shorter != shape.expected()).sum()
    shared = torch.tensor([spent_s / asked.iters / shape.ranks, wrong], dtype=torch.float64)
    barrier.allreduce([shared]).wait()
    seconds, all_wrong = shared.tolist()
    rate = shape.size / seconds / 1e9
    return Figures(seconds * 1e6, rate, rate * shape.bus_factor(), all_wrong)


def run(asked: CollectiveTest) -> bool:
    """Measure on this rank of a launch; rank 0 prints. Returns whether every result was right.

    Raises FileExistsError for the JSON file, as it may be another run's.
    """
    rank, begun = int(os.environ["RANK"]), datetime.datetime.now()
    file = None
    if asked.output_file is not None and rank == 0:
        file = Path(asked.output_file)
        file.touch(exist_ok=False)
    dist.init_process_group(BACKEND)
    try:
        barrier: Any = dist.new_group(backend="gloo")
        groups: dict[str, Any] = {BACKEND: dist.group.WORLD} | (
            {"gloo": dist.new_group(backend="gloo")} if asked.gloo else {}
        )
        devices: list[Any] = [None] * dist.get_world_size()
        mine = {"rank": rank, "group": 0, "pid": os.getpid(), "hostname": socket.gethostname()}
        here = {"device": -1, "device_hex": "", "device_info": "host memory"}
        dist.all_gather_object(devices, mine | here, group=barrier)
        least: partial[str] | None = None
        if asked.link is not None:
            comm = groups[BACKEND].join()
            found, beside = comm.find_hosts(), [0] * len(devices)
            dist.all_gather_object(beside, switches_beside(comm.lease), group=barrier)
            plan = [(each,) for each in range(len(devices))] if found is None else found.plan.hosts
            least = partial(least_time, asked.link, comm.lease, len(plan), [beside[ranks[0]] for ranks in plan])
        report = Report(asked, devices, echo=rank == 0)
        for size in asked.sizes():
            shape = Shape.of(asked.collective, size, _TYPES[asked.datatype], rank, len(devices))
            for name, group in groups.items() if shape.total else ():
                ways = (False, True) if shape.part < shape.total else (None, True)
                halves = [None if way is None else measure(group, barrier, shape, asked, in_place=way) for way in ways]
                report.add(name, shape, halves)
            if least is not None:
                report.say(least(shape.size))
        report.end()
    finally:
        dist.destroy_process_group()
    if file is not None:
        file.write_text(json.dumps(report.document(begun), indent=1), encoding="utf-8")
    return not report.wrong


class Report:
    """The table, which rank 0 prints row by row, and the JSON document."""

    def __init__(self, asked: CollectiveTest, devices: list[dict[str, Any]], *, echo: bool) -> None:
        self._asked, self._devices, self._echo = asked, devices, echo
        self._results: list[dict[str, Any]] = []
        self._bus_bw: list[float] = []
        self.wrong = 0
        """Elements of all results that were not right."""
        blank = ("",) * 5
        heads = ("time", "algbw", "busbw", "#wrong"), ("(us)", "(GB/s)", "(GB/s)", "")
        fronts = ("size", "count", "type", "redop", "root"), ("(B)", "(elements)", "", "", "")
        self.say(
            f"# p4reduce {metadata.version('p4reduce')}, in the format of nccl-tests 2.19.6",
            f"# Collective test starting: {asked.collective}_perf",
            f"# nThread 1 nGpus 1 minBytes {asked.minbytes} maxBytes {asked.maxbytes} step: {asked.stepfactor}(factor) "
            f"warmup iters: {asked.warmup_iters} iters: {asked.iters} agg iters: 1 validation: 1 graph: 0 unalign: 0",
            "# Blocking Enabled: wait and barrier after each outer iteration; time excludes barrier",
            "#\n# Using devices",
            *(
                "#  Rank {rank:2} Group {group:2} Pid {pid:6} on {hostname:>10} {device_info}".format(**d)
                for d in devices
            ),
            "#\n" + _FRONT.format(*blank) + "           out-of-place                       in-place",
            *(_FRONT.format(*front) + 2 * _HALF.format(*head) for front, head in zip(fronts, heads, strict=True)),
        )

    def add(self, name: str, shape: Shape, halves: list[Figures | None]) -> None:
        """Add a row. One of gloo's begins with "#", so that programs that read nccl-tests' tables leave it out."""
        own = name == BACKEND
        redop, root = "sum", -1
        front = _FRONT.format(shape.size, shape.part, self._asked.datatype, redop, root)
        body = "".join(" " * 33 if half is None else half.columns() for half in halves)
        self.say("  " + front[2:] + body if own else f"{front}{body}  {name}")
        done = [half for half in halves if half is not None]
        self.wrong += int(sum(half.nwrong for half in done))
        self._bus_bw += [half.bus_bw for half in done if own]
        row = {
            "size": shape.size,
            "count": shape.part,
            "type": self._asked.datatype,
            "redop": redop,
            "root": f"{root:6}",
        }
        for key, half in zip(("out_of_place", "in_place"), halves, strict=True):
            row[key] = None if half is None else asdict(half)
        self._results.append(row | {"actual_iterations": self._asked.iters, "experiment_name": name})

    def end(self) -> None:
        """Print what stands below the table."""
        self.say(
            f"# {'Out of bounds values':20} : {self.wrong} {'FAILED' if self.wrong else 'OK'}",
            f"# {'Avg bus bandwidth':20} : {self._average():g}",
            f"#\n# Collective test concluded: {self._asked.collective}_perf",
        )

    def _average(self) -> float:
        return statistics.fmean(self._bus_bw or [0.0])

    def say(self, *lines: str) -> None:
        """Print lines, on rank 0."""
        if self._echo:
            print(*lines, sep="\n", flush=True)

    def document(self, begun: datetime.datetime) -> dict[str, Any]:
        """Return the JSON document, whose truth values are texts; of the environment it has what is p4reduce's."""
        asked = self._asked
        ours = [name for name in sorted(os.environ) if name.startswith("P4REDUCE_") and name != P4REDUCE_TOKEN.name]
        config: dict[str, Any] = {"nthreads": 1, "ngpus": 1, "step_factor": asked.stepfactor, "devices": self._devices}
        config |= {"minimum_bytes": asked.minbytes, "maximum_bytes": asked.maxbytes, "iterations": asked.iters}
        config |= {"warmup_iters": asked.warmup_iters, "aggregated_iterations": 1, "validation": 1, "graph": 0}
        config |= {"blocking_collectives": "true", "parallel_init": "false"}
        config |= {"per_iter_timing": "false", "per_iter_skip": 0}
        return {
            "version": 3,
            "start_time": begun.strftime(_TIME),
            "args": sys.argv,
            "env": [f"{name}={os.environ[name]}" for name in ours],
            "nccl_version": 0,
            "config": config,
            "results": self._results,
            "out_of_bounds": {"count": self.wrong, "okay": "false" if self.wrong else "true"},
            "average_bus_bandwidth": {"bandwidth": self._average(), "okay": "unchecked"},
            "errors": [],
            "end_time": datetime.datetime.now().strftime(_TIME),
        }

"""Rows: which peers they measure, in which clusters, and their ratios; and the ranks of Open MPI."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from p4reduce_lab.bench import open_mpi, rows
from p4reduce_lab.bench.case import OPEN_MPI, Run
from p4reduce_lab.bench.cluster import CPU, OF_LAUNCH
from p4reduce_lab.bench.links import GBIT_1, GBIT_1_SMALL_BURST, LOOPBACK, MBIT_100, Link
from p4reduce_lab.bench.rank import Rank, later
from p4reduce_lab.bench.rows import BACKEND, STEP, Row
from p4reduce_lab.bench.tensors import Kind
from p4reduce_lab.processes import Children
from rigs.limits import LIMIT_S

SECONDS = {"gloo": 3e-4, BACKEND: 2e-5, OPEN_MPI: 1e-6}


def test_rows_measure_their_peers_in_turn_and_share_clusters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run, asked, clusters = Run(True, tmp_path, Children(tmp_path), networks=True), list[str](), list[Any]()

    def all_reduce(peer: str, elements: int, counts: Any = None, **given: Any) -> float:
        asked.append(peer)
        if counts is not None:
            counts.setdefault(CPU, []).append(2 * 50.0)  # of two calls
        return SECONDS[peer]

    @contextmanager
    def running_cluster(run: Run, link: Link, ranks: int, each: int, **given: Any) -> Iterator[Any]:
        clusters.append((link, ranks, given["mpi"]))
        mpi = True if ranks == 2 else None
        yield SimpleNamespace(run=run, link=link, mpi=mpi, all_reduce=all_reduce)

    ratios = {f"gloo / {BACKEND}": 4, f"30 us / {BACKEND}": 1, f"10 us / CPU of {BACKEND}": 1}
    some = [Row(4096, LOOPBACK, 2, ratios, placement=OF_LAUNCH, calls=2), Row(8, LOOPBACK, 4)]
    monkeypatch.setattr(rows, "running_cluster", running_cluster)
    rows.measure_rows(run, some)
    assert clusters == [(LOOPBACK, 2, True), (LOOPBACK, 4, True)]
    assert asked == ["gloo", OPEN_MPI, BACKEND] * 7 + ["gloo"] * 4, "a checked sum, then the turns"
    measured = [run.findings.ratios[threshold.name] for threshold in rows.thresholds(some)]
    assert measured == pytest.approx([15, 1.5, 0.2]) and "4 KB, 1 host of 2, no switch" in run.findings.series[0].what
    assert Row(STEP, GBIT_1, 4, {"gloo / p4reduce 8": 1}).peers == ["gloo", "p4reduce 8"], "Open MPI trains nothing"
    other_bursts = [Row(8, link, 4) for link in (MBIT_100, GBIT_1_SMALL_BURST)]
    assert len({rows._cluster_of(row) for row in other_bursts}) == 2


class Stand(Rank):
    """A rank alone, whose sums are wrong by `off`."""

    off = 0.0

    def _same_moment(self) -> float:
        return later()

    def _sum_of(self, peer: str, kind: Kind, data: NDArray[np.float32]) -> Callable[[], NDArray[np.float32]]:
        return lambda: np.add(data, self.off, out=data)


def test_a_wrong_sum_is_an_error_and_right_ones_begin_with_the_same_numbers() -> None:
    rank, request = Stand(0, 1, "lo"), {"elements": 64, "density": 1.0, "pattern": "random", "calls": 3, "check": True}
    assert rank.all_reduce("gloo", **request)["seconds"] > 0  # type: ignore[arg-type]
    rank.off = 0.01
    with pytest.raises(AssertionError, match="the sum by gloo is wrong by up to 0.01"):
        rank.all_reduce("gloo", **request)  # type: ignore[arg-type]


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(os.geteuid() != 0 or not open_mpi.NEED.there(), reason=f"takes root, {open_mpi.NEED.what}")
def test_ranks_of_open_mpi_sum_over_the_hosts_links_and_block_between_requests(tmp_path: Path) -> None:
    """In a network namespace of its own, as cases are."""
    script = f"""
import time
from contextlib import ExitStack
from pathlib import Path
from p4reduce_lab.bench import cluster, links
from p4reduce_lab.bench.case import Run
from p4reduce_lab.network import NetworkBuilder
from p4reduce_lab.processes import Children
from p4reduce_lab.reaper import processes
with Children(Path({str(tmp_path)!r})) as children, ExitStack() as stack:
    hosts = links.build(NetworkBuilder(children), 2).hosts
    ranks = cluster._start_mpi(Run(True, children.logs, children), stack, hosts, 2)
    kind = dict(elements=1 << 18, density=1.0, pattern="random")
    replies = ranks.ask("all_reduce", peer="Open MPI", calls=2, check=True, **kind)
    print("crossed:", [reply["bytes_up"] > 1 << 20 for reply in replies])
    before = sum(map(cluster.cpu_seconds, processes(children.mark)))
    time.sleep(2)
    print("blocked:", sum(map(cluster.cpu_seconds, processes(children.mark))) - before < 0.2)
"""
    command = ["unshare", "--net", "--", sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "crossed: [True, True]\nblocked: True\n"

"""Rows: which peers they measure, in which clusters, and their ratios."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from p4reduce_lab.bench import rows
from p4reduce_lab.bench.case import Run
from p4reduce_lab.bench.cluster import CPU, OF_LAUNCH
from p4reduce_lab.bench.links import GBIT_1, GBIT_1_SMALL_BURST, LOOPBACK, MBIT_100, Link
from p4reduce_lab.bench.rank import Rank, later
from p4reduce_lab.bench.rows import BACKEND, STEP, Row
from p4reduce_lab.bench.tensors import Kind
from p4reduce_lab.processes import Children

SECONDS = {"gloo": 3e-4, BACKEND: 2e-5}


def test_rows_measure_their_peers_in_turn_and_share_clusters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run, asked, clusters = Run(True, tmp_path, Children(tmp_path), networks=True), list[str](), list[Any]()

    def all_reduce(peer: str, elements: int, counts: Any = None, **given: Any) -> float:
        asked.append(peer)
        if counts is not None:
            counts.setdefault(CPU, []).append(2 * 50.0)  # of two calls
        return SECONDS[peer]

    @contextmanager
    def running_cluster(run: Run, link: Link, ranks: int, each: int, **given: Any) -> Iterator[Any]:
        clusters.append((link, ranks))
        yield SimpleNamespace(run=run, link=link, all_reduce=all_reduce, world_size=ranks)

    ratios = {f"gloo / {BACKEND}": 4, f"30 us / {BACKEND}": 1, f"10 us / CPU of {BACKEND}": 1}
    some = [Row(4096, LOOPBACK, 2, ratios, placement=OF_LAUNCH, calls=2), Row(8, LOOPBACK, 4)]
    monkeypatch.setattr(rows, "running_cluster", running_cluster)
    rows.measure_rows(run, some)
    assert clusters == [(LOOPBACK, 2), (LOOPBACK, 4)]
    assert asked == ["gloo", BACKEND] * 7 + ["gloo"] * 4, "a checked sum, then the turns"
    measured = [run.findings.ratios[threshold.name] for threshold in rows.thresholds(some)]
    assert measured == pytest.approx([15, 1.5, 0.2]) and "4 KB, 1 host of 2, no switch" in run.findings.series[0].what
    assert Row(STEP, GBIT_1, 4, {"gloo / p4reduce 8": 1}).peers == ["gloo", "p4reduce 8"]
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

"""Cases that are sums of float32 tensors alone: dense, one-host, density."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from p4reduce_lab.bench.case import NETWORKS, TRAINING_PACKAGES, Case, Run
from p4reduce_lab.bench.cluster import OF_LAUNCH
from p4reduce_lab.bench.links import GBIT_1, GBIT_1_LARGE_BURST, GBIT_1_SMALL_BURST, LOOPBACK, MBIT_100
from p4reduce_lab.bench.measuring import MEGABYTE
from p4reduce_lab.bench.rows import BACKEND, Row, measure_rows, thresholds
from p4reduce_lab.bench.tensors import ALL_OVERLAP, NONE_OVERLAP, PATTERNS

RATIO, GLOO = "gloo / p4reduce", f"gloo / {BACKEND}"
DENSE = (
    Row(4 * MEGABYTE, LOOPBACK, 4, {RATIO: 0.6}),
    Row(25 * MEGABYTE, LOOPBACK, 4, {RATIO: 0.9}),
    Row(4 * MEGABYTE, MBIT_100, 4, {RATIO: 1.4}),
    Row(25 * MEGABYTE, GBIT_1, 4, {RATIO: 3.0}),
    Row(25 * MEGABYTE, GBIT_1_LARGE_BURST, 4, also=("p4reduce",)),
    Row(25 * MEGABYTE, GBIT_1_SMALL_BURST, 4, {RATIO: 1.1}),
    Row(4 * MEGABYTE, MBIT_100, 8, {RATIO: 1.5}),
)
ONE_HOST = tuple(
    Row(megabytes * MEGABYTE, LOOPBACK, 4, {GLOO: least}, placement=OF_LAUNCH, calls=4)
    for megabytes, least in ((4, 1.8), (26, 2.2))
)

POINTS = tuple(
    f"p4reduce {density}% {pattern}"
    for density in (100, 50, 20, 10, 5, 2, 1)
    for pattern in (PATTERNS if density < 100 else (ALL_OVERLAP,))
    if pattern != NONE_OVERLAP or 4 * density <= 100
)
"""The shares of blocks that are not zero, as OmniReduce measured it: gloo moves all, p4reduce those."""
TEN, ONE = (f"gloo / p4reduce {density}% {ALL_OVERLAP}" for density in (10, 1))
DENSITY = (
    Row(4 * MEGABYTE, MBIT_100, 4, {TEN: 10, ONE: 60}, POINTS, limit_s=75.0),
    Row(25 * MEGABYTE, GBIT_1, 4, {TEN: 15, ONE: 60}, POINTS, limit_s=75.0),
)


def measure_density(run: Run) -> None:
    """Measure every density and pattern in turn with dense sums of gloo, in a quick run two of them."""
    measure_rows(run, (replace(row, also=()) for row in DENSITY) if run.quick else DENSITY)


CASES = (
    Case(
        "dense",
        "dense float32 all-reduces: gloo, Open MPI and p4reduce in turn",
        partial(measure_rows, rows=DENSE),
        thresholds=thresholds(DENSE),
    ),
    Case(
        "one-host",
        "a launch of 4 ranks on one host without a switch: large sums, on two cores",
        partial(measure_rows, rows=ONE_HOST, two_cores=True),
        needs=(TRAINING_PACKAGES,),
        thresholds=thresholds(ONE_HOST),
    ),
    Case(
        "density",
        "time against the share of blocks that are not zero (random, all-overlap, none-overlap)",
        measure_density,
        needs=(NETWORKS,),
        thresholds=thresholds(DENSITY),
    ),
)

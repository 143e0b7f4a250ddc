"""Cases that are sums of float32 tensors alone: dense, one-host, density, small."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from p4reduce_lab.bench.case import COMMUNICATOR, NETWORKS, TRAINING_PACKAGES, Case, Run
from p4reduce_lab.bench.cluster import IN_BRIDGE, OF_LAUNCH, Placement
from p4reduce_lab.bench.links import GBIT_1, GBIT_1_LARGE_BURST, GBIT_1_SMALL_BURST, LOOPBACK, MBIT_100, VETH, Link
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

KB = 1 << 10
CALLS = {256: 64, 4 * KB: 64, 64 * KB: 64, 256 * KB: 32, MEGABYTE: 16}
"""Bytes of a small sum -> calls in a turn."""


def _small(
    peer: str, link: Link, ranks: int, ratios: Mapping[int, Mapping[str, float]], placement: Placement = OF_LAUNCH
) -> list[Row]:
    """Return a row for each size; `ratios` has those of a size."""
    return [
        Row(size, link, ranks, ratios.get(size, {}), (peer,), placement=placement, calls=calls, limit_s=8.0)
        for size, calls in CALLS.items()
    ]


AT_MOST_30, AT_MOST_150 = (f"{us} us / {BACKEND}" for us in (30, 150))
CORE_EACH = {size: {AT_MOST_30: 1.0, GLOO: 7.0} for size in (256, 4 * KB)}
OVER_SWITCH = {f"110 us / {COMMUNICATOR}": 1.0, f"60 us / CPU of {COMMUNICATOR}": 1.0}
SMALL = (
    *_small(BACKEND, LOOPBACK, 2, {**CORE_EACH, 64 * KB: {GLOO: 4}, MEGABYTE: {GLOO: 2}}),
    *_small(BACKEND, LOOPBACK, 4, {4 * KB: {AT_MOST_150: 1}}),
    *_small(BACKEND, VETH, 2, {4 * KB: {GLOO: 2}, 64 * KB: {GLOO: 1.1}, MEGABYTE: {GLOO: 0.8}}),
    *_small(BACKEND, GBIT_1, 4, {4 * KB: {GLOO: 8}, 64 * KB: {GLOO: 5}}),
    *_small(COMMUNICATOR, LOOPBACK, 2, {4 * KB: OVER_SWITCH}, IN_BRIDGE),
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
    Case(
        "small",
        "sums of 256 B to 1 MB on two cores: the backend in a launch, a communicator over a switch; gloo, Open MPI",
        partial(measure_rows, rows=SMALL, two_cores=True),
        needs=(TRAINING_PACKAGES,),
        thresholds=thresholds(SMALL),
    ),
)

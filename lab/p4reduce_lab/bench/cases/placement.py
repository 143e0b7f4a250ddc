"""Embedded switches in the bridge, on servers of their own, and on each worker's host; every host has one link.

What each link carries is compared with the formulas of p4reduce/doctor/bottleneck.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from p4reduce.doctor.bottleneck import framed, host_tensors
from p4reduce_contracts.wire.geometry import DEFAULT
from p4reduce_lab.bench.case import NETWORKS, TRAINING_PACKAGES, Case, Threshold
from p4reduce_lab.bench.cluster import IN_BRIDGE, Cluster, Placement
from p4reduce_lab.bench.links import GBIT_1, MBIT_100
from p4reduce_lab.bench.measuring import CALLS, FLOAT_BYTES, MEGABYTE, STEPS
from p4reduce_lab.bench.rows import BACKEND, STEP, Row, measure_rows, thresholds
from p4reduce_lab.bench.tensors import ALL_OVERLAP

ON_EACH_HOST = Placement("switch on each host", on_each_host=True)
SERVERS = {number: Placement(f"{number} server{'s' * (number > 1)}", number) for number in (1, 2, 4)}
FORMATS = ("p4reduce", "p4reduce 16", "p4reduce 8")
FLOAT32, SIXTEEN, EIGHT = (f"gloo / {one}" for one in FORMATS)
SPARSE = tuple(f"p4reduce {share}% {ALL_OVERLAP}" for share in (10, 1))
TEN, ONE = (f"gloo / {one}" for one in SPARSE)
ADACOMP = {"gloo / p4reduce AdaComp": 8, "gloo fp16 / p4reduce AdaComp": 4}
RANKS = 4
_COUNTED_MB = 8


def _four(placement: Placement, at_least: Mapping[str, float]) -> Row:
    """Return the row of 4 MB at 100 Mbit/s that all placements have."""
    quick = placement in (SERVERS[1], ON_EACH_HOST)
    return Row(4 * MEGABYTE, MBIT_100, RANKS, at_least, FORMATS + SPARSE, placement=placement, quick=quick)


def _two_hosts(ranks: int, least: float) -> Row:
    at_least = {FLOAT32: least}
    return Row(2 * MEGABYTE, MBIT_100, 2 * ranks, at_least, ranks_per_host=ranks, placement=ON_EACH_HOST, quick=False)


ROWS = (
    _four(IN_BRIDGE, {}),
    _four(SERVERS[1], {}),
    _four(SERVERS[2], {FLOAT32: 0.7}),
    _four(SERVERS[4], {FLOAT32: 1.4}),
    _four(ON_EACH_HOST, {FLOAT32: 0.95, SIXTEEN: 1.85, EIGHT: 3.5, TEN: 6, ONE: 45}),
    *(
        Row(size, MBIT_100, RANKS, {f"gloo / {BACKEND}": least}, placement=ON_EACH_HOST, calls=CALLS)
        for size, least in ((4_000, 2), (64_000, 1.5))
    ),
    Row(STEP, MBIT_100, RANKS, ADACOMP, placement=ON_EACH_HOST, calls=STEPS),
    Row(26 * MEGABYTE, GBIT_1, RANKS, {FLOAT32: 1.2, SIXTEEN: 2}, placement=ON_EACH_HOST),
    _two_hosts(2, 1.3),
    _two_hosts(4, 1.5),
)
COUNTED = 1 / 1.03


def counted_threshold(placement: Placement, hosts: int) -> Threshold:
    """Return the threshold of what the links carry: the least of formula / counted and counted / formula."""
    return Threshold(f"{placement.name}, {hosts} hosts: bytes on a link, formula and counted", COUNTED)


def count(cluster: Cluster, row: Row) -> None:
    """Compare the bytes that each link carries each way in one dense sum with the formula."""
    if row.link != MBIT_100 or row.size < MEGABYTE or row.ranks_per_host > 2:
        return
    network, placement = cluster.network, cluster.placement
    hosts = len(network.hosts)
    switches, beside = (hosts, 1) if placement.on_each_host else (placement.servers or 1, 0)
    size = _COUNTED_MB * MEGABYTE
    before = network.carried()
    cluster.all_reduce("p4reduce", size // FLOAT_BYTES)
    tensors = [host_tensors(hosts, switches, beside)] * hosts + [hosts / switches] * len(network.servers)
    worst = 1.0
    for number, (expected, earlier, later) in enumerate(zip(tensors, before, network.carried(), strict=True)):
        up, down = ((after - first) / (framed(DEFAULT) * size) for first, after in zip(earlier, later, strict=True))
        cluster.run.say(f"link {number}: {up:.3f} tensors up, {down:.3f} down; the formula has {expected:g}")
        worst = min(worst, *(min(way / expected, expected / way) for way in (up, down)))
    cluster.run.ratio(counted_threshold(placement, hosts).name, [worst], [1.0])


CASE = Case(
    "placement",
    "switches in the bridge, on servers with a link like the hosts', on each host: sums, a DDP step, bytes on links",
    partial(measure_rows, rows=ROWS, then=count),
    needs=(NETWORKS, TRAINING_PACKAGES),
    thresholds=(
        *thresholds(ROWS),
        *(counted_threshold(placement, RANKS) for placement in (IN_BRIDGE, *SERVERS.values(), ON_EACH_HOST)),
        counted_threshold(ON_EACH_HOST, 2),
    ),
    limit_s=600.0,
)

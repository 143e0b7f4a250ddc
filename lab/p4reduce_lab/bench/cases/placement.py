"""Embedded switches in the bridge, on servers of their own, and on each worker's host; every host has one link.

What each link carries is compared with the formulas of p4reduce/doctor/bottleneck.py.
"""

from __future__ import annotations

from functools import partial

from p4reduce.doctor.bottleneck import framed, host_tensors
from p4reduce_contracts.wire.geometry import DEFAULT
from p4reduce_lab.bench.case import Threshold
from p4reduce_lab.bench.cluster import IN_BRIDGE, ON_EACH_HOST, SERVERS, Cluster, Placement
from p4reduce_lab.bench.grid import case_of, rows_of
from p4reduce_lab.bench.links import MBIT_100
from p4reduce_lab.bench.rows import FLOAT_BYTES, MEGABYTE, Row, measure_rows

RANKS = 4
_COUNTED_MB = 8
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


CASE = case_of(
    "placement",
    partial(measure_rows, rows=rows_of("placement"), then=count),
    (
        *(counted_threshold(placement, RANKS) for placement in (IN_BRIDGE, *SERVERS, ON_EACH_HOST)),
        counted_threshold(ON_EACH_HOST, 2),
    ),
)

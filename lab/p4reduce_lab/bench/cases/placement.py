"""Embedded switches in the bridge, on servers of their own, and on each worker's host; every host has one link.

What each link carries is compared with the formulas of p4reduce/doctor/bottleneck.py.
"""

from __future__ import annotations

from p4reduce.doctor.bottleneck import framed, host_tensors
from p4reduce_contracts.wire.geometry import DEFAULT
from p4reduce_lab.bench.case import NETWORKS, TRAINING_PACKAGES, Case, Run, Threshold
from p4reduce_lab.bench.cluster import IN_BRIDGE, Cluster, Placement, running_cluster
from p4reduce_lab.bench.links import GBIT_1, MBIT_100, Link
from p4reduce_lab.bench.measuring import (
    CALLS,
    FLOAT_BYTES,
    MEGABYTE,
    measure_collective,
    measure_dense,
    measure_sparse,
    measure_steps,
)
from p4reduce_lab.bench.tensors import ALL_OVERLAP

ON_EACH_HOST = Placement("switch on each host", on_each_host=True)
SERVERS = {number: Placement(f"{number} server{'s' * (number > 1)}", number) for number in (1, 2, 4)}
FLOAT32, SIXTEEN, EIGHT = "p4reduce", "p4reduce 16", "p4reduce 8"
RANKS = 4
_COUNTED_MB = 8
_QUICK_MB = 8

DENSE = {
    (ON_EACH_HOST, 4, 1, MBIT_100, 4): {FLOAT32: 0.95, SIXTEEN: 1.85, EIGHT: 3.5},
    (ON_EACH_HOST, 4, 1, GBIT_1, 26): {FLOAT32: 1.2, SIXTEEN: 2},
    (ON_EACH_HOST, 2, 2, MBIT_100, 2): {FLOAT32: 1.3},
    (ON_EACH_HOST, 2, 4, MBIT_100, 2): {FLOAT32: 1.5},
    (SERVERS[4], 4, 1, MBIT_100, 4): {FLOAT32: 1.4},
    (SERVERS[2], 4, 1, MBIT_100, 4): {FLOAT32: 0.7},
}
"""(placement, hosts, ranks a host, link, megabytes) -> the least ratio of gloo's time to that of each wire format."""
QUICK = (SERVERS[1], ON_EACH_HOST)


def _each_host(what: str, least: float) -> Threshold:
    return Threshold(f"{ON_EACH_HOST.name}, 100 Mbit/s, {what}", least)


SPARSE = {
    share: _each_host(f"{share:.0%} of the blocks, 4 MB: gloo dense / p4reduce", least)
    for share, least in ((0.1, 6), (0.01, 45))
}
"""The thresholds of sums in which a share of the blocks is not zero."""
SMALL = {
    size: _each_host(f"all_reduce of {size // 1000} KB in a row: gloo / backend p4reduce", least)
    for size, least in ((4_000, 2), (64_000, 1.5))
}
STEP = {
    peer: _each_host(f"DDP step: {peer} / p4reduce AdaComp", least) for peer, least in (("gloo", 8), ("gloo fp16", 4))
}
COUNTED = 1 / 1.03


def dense_threshold(placement: Placement, hosts: int, ranks: int, link: Link, megabytes: int, peer: str) -> Threshold:
    """Return the threshold of a dense sum."""
    name = f"{placement.name}, {hosts} hosts of {ranks} rank{'s' * (ranks > 1)}, {link.name}, {megabytes} MB"
    least = DENSE[placement, hosts, ranks, link, megabytes][peer]
    return Threshold(f"{name}: gloo / {peer}", least)


def counted_threshold(placement: Placement, hosts: int) -> Threshold:
    """Return the threshold of what the links carry: the least of formula / counted and counted / formula."""
    return Threshold(f"{placement.name}, {hosts} hosts: bytes on a link, formula and counted", COUNTED)


def measure(run: Run) -> None:
    """Measure every placement with 4 hosts, then 2 hosts of several ranks with a switch on each."""
    for placement in (IN_BRIDGE, *SERVERS.values(), ON_EACH_HOST):
        if run.quick and placement not in QUICK:
            run.skip(placement.name, "it is left out of a quick run")
            continue
        with running_cluster(run, MBIT_100, RANKS, placement=placement) as cluster:
            dense(cluster, 4, (FLOAT32, SIXTEEN, EIGHT))
            sparse(cluster)
            if placement is ON_EACH_HOST:
                small(cluster)
                cluster.shape(GBIT_1)
                dense(cluster, 26, (FLOAT32, SIXTEEN))
    for hosts, ranks in () if run.quick else ((2, 2), (2, 4)):
        with running_cluster(run, MBIT_100, hosts * ranks, ranks, placement=ON_EACH_HOST) as cluster:
            dense(cluster, 2, (FLOAT32,))


def dense(cluster: Cluster, megabytes: int, peers: tuple[str, ...]) -> None:
    """Measure sums of a float32 tensor in turn with gloo's, and what the links carry of one."""
    run, placement, hosts = cluster.run, cluster.placement, len(cluster.network.hosts)
    found = measure_dense(cluster, min(megabytes, _QUICK_MB) if run.quick else megabytes, ("gloo", *peers))
    at = placement, hosts, cluster.world_size // hosts, cluster.link, megabytes
    for peer in DENSE.get(at, ()):
        run.ratio(dense_threshold(*at, peer).name, found["gloo"], found[peer])
    if cluster.link == MBIT_100 and cluster.world_size // hosts < 4:
        count(cluster)


def count(cluster: Cluster) -> None:
    """Compare the bytes that each link carries each way in one dense sum with the formula."""
    network, placement = cluster.network, cluster.placement
    hosts = len(network.hosts)
    switches, beside = (hosts, 1) if placement.on_each_host else (placement.servers or 1, 0)
    size = _COUNTED_MB * MEGABYTE
    before = network.carried()
    cluster.all_reduce(FLOAT32, size // FLOAT_BYTES)
    tensors = [host_tensors(hosts, switches, beside)] * hosts + [hosts / switches] * len(network.servers)
    worst = 1.0
    for number, (expected, earlier, later) in enumerate(zip(tensors, before, network.carried(), strict=True)):
        up, down = ((after - first) / (framed(DEFAULT) * size) for first, after in zip(earlier, later, strict=True))
        cluster.run.say(f"link {number}: {up:.3f} tensors up, {down:.3f} down; the formula has {expected:g}")
        worst = min(worst, *(min(way / expected, expected / way) for way in (up, down)))
    cluster.run.ratio(counted_threshold(placement, hosts).name, [worst], [1.0])


def sparse(cluster: Cluster) -> None:
    """Measure sums of tensors that are mostly zeros, beside gloo's dense one."""
    found = measure_sparse(cluster, 4, [(share, ALL_OVERLAP) for share in SPARSE])
    for share in SPARSE if cluster.placement is ON_EACH_HOST else ():
        cluster.run.ratio(SPARSE[share].name, found["gloo"], found[f"p4reduce {share:.0%} {ALL_OVERLAP}"])


def small(cluster: Cluster) -> None:
    """Measure small sums and a training step."""
    run = cluster.run
    for size in SMALL:
        what = f"all_reduce in a row of {size:,} bytes a rank, {RANKS} workers"
        found = measure_collective(cluster, what, "all_reduce", size, calls=CALLS, turns=2 * run.repetitions)
        run.ratio(SMALL[size].name, found["gloo"], found["p4reduce"])
    found = measure_steps(cluster, (*STEP, "p4reduce AdaComp"))
    for peer in STEP:
        run.ratio(STEP[peer].name, found[peer], found["p4reduce AdaComp"])


CASE = Case(
    "placement",
    "switches in the bridge, on servers with a link like the hosts', on each host: sums, a DDP step, bytes on links",
    measure,
    needs=(NETWORKS, TRAINING_PACKAGES),
    thresholds=(
        *(dense_threshold(*at, peer) for at, leasts in DENSE.items() for peer in leasts),
        *(threshold for by_key in (SPARSE, SMALL, STEP) for threshold in by_key.values()),
        *(counted_threshold(placement, RANKS) for placement in (IN_BRIDGE, *SERVERS.values(), ON_EACH_HOST)),
        counted_threshold(ON_EACH_HOST, 2),
    ),
    limit_s=600.0,
)

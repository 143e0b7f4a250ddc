"""Dense float32 all-reduces beside gloo, on shaped links and on loopback."""

from __future__ import annotations

from functools import partial

from p4reduce_lab.bench.case import Case, Run, Series, Threshold
from p4reduce_lab.bench.cluster import Cluster, running_cluster, summed_up
from p4reduce_lab.bench.links import GBIT_1, GBIT_1_LARGE_BURST, GBIT_1_SMALL_BURST, LOOPBACK, MBIT_100, Link
from p4reduce_lab.bench.numbers import in_turn, median

MEGABYTE = 1 << 20
FLOAT_BYTES = 4
PEERS = ("gloo", "p4reduce")
_CHECKED_MB, _QUICK_MB = 4, 8
_LIMIT_S = 60.0

ON_100 = Threshold("dense, 100 Mbit/s, 4 MB, 4 workers: gloo / p4reduce", 1.4)
ON_1000 = Threshold("dense, 1 Gbit/s, burst 64k, 25 MB, 4 workers: gloo / p4reduce", 3.0)
ON_1000_CUT = Threshold("dense, 1 Gbit/s, burst 16k, 25 MB, 4 workers: gloo / p4reduce", 1.1)
ON_LOOPBACK = Threshold("dense, loopback, 25 MB, 4 workers: gloo / p4reduce", 0.9)
ON_LOOPBACK_SMALL = Threshold("dense, loopback, 4 MB, 4 workers: gloo / p4reduce", 0.6)
EIGHT_WORKERS = Threshold("dense, 100 Mbit/s, 4 MB, 8 workers: gloo / p4reduce", 1.5)


def measure(run: Run) -> None:
    """Measure 4 workers on loopback, 4 and 8 workers on shaped links."""
    with running_cluster(run, LOOPBACK, 4) as cluster:
        compare(cluster, LOOPBACK, 4, ON_LOOPBACK_SMALL)
        compare(cluster, LOOPBACK, 25, ON_LOOPBACK)
    if not run.networks:
        run.skip("dense on shaped links", "that takes root")
        return
    with running_cluster(run, MBIT_100, 4) as cluster:
        compare(cluster, MBIT_100, 4, ON_100)
        compare(cluster, GBIT_1, 25, ON_1000)
        compare(cluster, GBIT_1_LARGE_BURST, 25)
    with running_cluster(run, GBIT_1_SMALL_BURST, 4) as cluster:  # a rank finds out once how long its runs may be
        compare(cluster, GBIT_1_SMALL_BURST, 25, ON_1000_CUT)
    with running_cluster(run, MBIT_100, 8) as cluster:
        compare(cluster, MBIT_100, 4, EIGHT_WORKERS)


def compare(cluster: Cluster, link: Link, megabytes: float, threshold: Threshold | None = None) -> None:
    """Measure both peers in turn, add their series, and the ratio for the threshold."""
    run = cluster.run
    if cluster.link != link:
        cluster.shape(link)
    if run.quick:
        megabytes = min(megabytes, _QUICK_MB)
    elements = int(megabytes * MEGABYTE) // FLOAT_BYTES
    counts: dict[str, dict[str, list[float]]] = {peer: {} for peer in PEERS}
    for peer in PEERS:  # also warms up, which large tensors need less and take longer
        cluster.all_reduce(peer, min(elements, _CHECKED_MB * MEGABYTE // FLOAT_BYTES), check=True)

    def once(peer: str) -> float:
        return cluster.all_reduce(peer, elements, counts[peer])

    found = in_turn({peer: partial(once, peer) for peer in PEERS}, run.repetitions, _LIMIT_S, at_least=1)
    size = f"{megabytes:g} MB"
    for peer, seconds in found.items():
        counted = summed_up(counts[peer])
        if link.rate_mbit:
            goodput = 8 * FLOAT_BYTES * elements / median(seconds) / 1e6
            counted["% of the link"] = 100 * goodput / link.rate_mbit
        what = f"dense float32, {size}, {cluster.world_size} workers"
        times = [1000 * second for second in seconds]
        sized = {"size": FLOAT_BYTES * elements, "ranks": cluster.world_size}
        run.add(Series(what, peer, str(link), "ms", times, {}, counted, **sized))
    if threshold is not None:
        run.ratio(threshold.name, found["gloo"], found["p4reduce"])


CASE = Case(
    "dense",
    "dense float32 all-reduces: gloo and p4reduce in turn",
    measure,
    thresholds=(ON_100, ON_1000, ON_1000_CUT, ON_LOOPBACK, ON_LOOPBACK_SMALL, EIGHT_WORKERS),
)

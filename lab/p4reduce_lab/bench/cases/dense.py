"""Dense float32 all-reduces beside gloo, on shaped links and on loopback."""

from __future__ import annotations

from p4reduce_lab.bench.case import Case, Run, Threshold
from p4reduce_lab.bench.cluster import Cluster, running_cluster
from p4reduce_lab.bench.links import GBIT_1, GBIT_1_LARGE_BURST, GBIT_1_SMALL_BURST, LOOPBACK, MBIT_100, Link
from p4reduce_lab.bench.measuring import measure_dense

PEERS = ("gloo", "p4reduce")
_QUICK_MB = 8

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
    if cluster.link != link:
        cluster.shape(link)
    found = measure_dense(cluster, min(megabytes, _QUICK_MB) if cluster.run.quick else megabytes, PEERS)
    if threshold is not None:
        cluster.run.ratio(threshold.name, found["gloo"], found["p4reduce"])


CASE = Case(
    "dense",
    "dense float32 all-reduces: gloo and p4reduce in turn",
    measure,
    thresholds=(ON_100, ON_1000, ON_1000_CUT, ON_LOOPBACK, ON_LOOPBACK_SMALL, EIGHT_WORKERS),
)

"""Time against the share of blocks that are not zero, as OmniReduce measured it: gloo moves all, p4reduce those."""

from __future__ import annotations

from p4reduce_lab.bench.case import NETWORKS, Case, Run, Threshold
from p4reduce_lab.bench.cluster import Cluster, running_cluster
from p4reduce_lab.bench.links import GBIT_1, MBIT_100, Link
from p4reduce_lab.bench.measuring import measure_sparse
from p4reduce_lab.bench.tensors import ALL_OVERLAP, NONE_OVERLAP, PATTERNS

WORKERS = 4
DENSITIES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
QUICK_DENSITIES = (0.1, 0.01)
_LIMIT_S = 75.0

THRESHOLDS = {
    (MBIT_100, 0.1): Threshold("10 % of blocks, all-overlap, 100 Mbit/s, 4 MB: gloo dense / p4reduce", 10),
    (MBIT_100, 0.01): Threshold("1 % of blocks, all-overlap, 100 Mbit/s, 4 MB: gloo dense / p4reduce", 60),
    (GBIT_1, 0.1): Threshold("10 % of blocks, all-overlap, 1 Gbit/s, 25 MB: gloo dense / p4reduce", 15),
    (GBIT_1, 0.01): Threshold("1 % of blocks, all-overlap, 1 Gbit/s, 25 MB: gloo dense / p4reduce", 60),
}


def measure(run: Run) -> None:
    """Measure both links with the same workers."""
    with running_cluster(run, MBIT_100, WORKERS) as cluster:
        against_density(cluster, MBIT_100, 4)
        cluster.shape(GBIT_1)
        against_density(cluster, GBIT_1, 8 if run.quick else 25)


def against_density(cluster: Cluster, link: Link, megabytes: int) -> None:
    """Measure every density and pattern in turn with gloo's dense sum."""
    run = cluster.run
    points = [
        (density, pattern)
        for density in (QUICK_DENSITIES if run.quick else DENSITIES)
        for pattern in (PATTERNS if density < 1 and not run.quick else (ALL_OVERLAP,))
        if pattern != NONE_OVERLAP or WORKERS * density <= 1
    ]
    found = measure_sparse(cluster, megabytes, points, limit_s=_LIMIT_S)
    for (of_link, density), threshold in THRESHOLDS.items():
        if of_link == link:
            run.ratio(threshold.name, found["gloo"], found[f"p4reduce {density:.0%} {ALL_OVERLAP}"])


CASE = Case(
    "density",
    "time against the share of blocks that are not zero (random, all-overlap, none-overlap)",
    measure,
    needs=(NETWORKS,),
    thresholds=tuple(THRESHOLDS.values()),
)

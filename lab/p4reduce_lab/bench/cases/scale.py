"""Dense all-reduces against the number of workers, and against the size of the tensor."""

from __future__ import annotations

from p4reduce_lab.bench.case import NETWORKS, Case, Run
from p4reduce_lab.bench.cases.dense import compare
from p4reduce_lab.bench.cluster import running_cluster
from p4reduce_lab.bench.links import GBIT_1

WORKERS, QUICK_WORKERS = (2, 4, 8), (2,)
WORKERS_MB = 8.0
SIZES_MB, QUICK_SIZES_MB = (1 / 16, 1 / 4, 1.0, 4.0, 16.0, 100.0), (1 / 16, 1.0)


def against_workers(run: Run) -> None:
    """Measure the same tensor with 2, 4 and 8 workers."""
    for workers in QUICK_WORKERS if run.quick else WORKERS:
        with running_cluster(run, GBIT_1, workers) as cluster:
            compare(cluster, GBIT_1, 1.0 if run.quick else WORKERS_MB, axis="workers")


def against_size(run: Run) -> None:
    """Measure 64 KB to 100 MB with 4 workers."""
    with running_cluster(run, GBIT_1, 4) as cluster:
        for megabytes in QUICK_SIZES_MB if run.quick else SIZES_MB:
            compare(cluster, GBIT_1, megabytes, axis="size")


WORKERS_CASE = Case("workers", "dense all-reduces against 2, 4 and 8 workers", against_workers, needs=(NETWORKS,))
SIZE_CASE = Case("size", "dense all-reduces and goodput against 64 KB to 100 MB", against_size, needs=(NETWORKS,))

"""The backend p4reduce of torch.distributed beside gloo's: collectives, DDP without a hook, FSDP2."""

from __future__ import annotations

from p4reduce_lab.bench.case import NETWORKS, TRAINING_PACKAGES, Case, Run, Threshold
from p4reduce_lab.bench.cluster import Cluster, running_cluster
from p4reduce_lab.bench.links import GBIT_1, MBIT_100, VETH
from p4reduce_lab.bench.measuring import CALLS, measure_collective
from p4reduce_lab.bench.rows import BACKEND, STEP, Row, measure_rows, thresholds

WORKERS = 4
BYTES, QUICK_BYTES = (4_000, 64_000, 400_000), (4_000, 64_000)
_LIMIT_S = 30.0

_LINKS = {VETH: "unshaped veth", GBIT_1: "1 Gbit/s"}
RATIOS = {f"gloo / {BACKEND}": 1 / 0.6}
SUMS = [
    Row(size, link, WORKERS, RATIOS if size < 100_000 else {}, (BACKEND,), calls=CALLS, limit_s=_LIMIT_S)
    for link in _LINKS
    for size in BYTES
]
COPIES = {
    (link, name, size): Threshold(
        f"{name} of {size // 1000} KB in a row, {words}: gloo / backend p4reduce", 1 / 2 if link is VETH else 1 / 1.3
    )
    for link, words in _LINKS.items()
    for name in ("broadcast", "all_gather")
    for size in BYTES
}
RATIO, FSDP = "gloo backend / p4reduce backend", "gloo FSDP2 / p4reduce FSDP2"
STEPS = (
    Row(STEP, MBIT_100, WORKERS, {RATIO: 1.35}, calls=10),
    Row(STEP, GBIT_1, WORKERS, {RATIO: 2.5, FSDP: 1.2}, calls=10),
)


def measure(run: Run) -> None:
    """Measure collectives of 4 to 400 KB without a shaper and on 1 Gbit/s, and training steps on shaped links."""
    measure_rows(run, [row for row in SUMS if not run.quick or row.size in QUICK_BYTES])
    with running_cluster(run, VETH, WORKERS) as cluster:
        for link in _LINKS:
            cluster.shape(link)
            for name in ("broadcast", "all_gather"):
                for size in QUICK_BYTES if run.quick else BYTES:
                    _copies(cluster, name, size)
    measure_rows(run, STEPS)


def _copies(cluster: Cluster, name: str, size: int) -> None:
    run = cluster.run
    what = f"{name} in a row of {size:,} bytes a rank, {WORKERS} workers"
    found = measure_collective(cluster, what, name, size, calls=CALLS, turns=2 * run.repetitions, limit_s=_LIMIT_S)
    run.ratio(COPIES[cluster.link, name, size].name, found["gloo"], found["p4reduce"])


CASE = Case(
    "backend",
    "the torch.distributed backend beside gloo: all_reduce, broadcast and all_gather, DDP without a hook, FSDP2",
    measure,
    needs=(NETWORKS, TRAINING_PACKAGES),
    thresholds=(*thresholds((*SUMS, *STEPS)), *COPIES.values()),
    limit_s=600.0,
)

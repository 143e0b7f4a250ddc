"""The backend p4reduce of torch.distributed beside gloo's: collectives, DDP without a hook, FSDP2."""

from __future__ import annotations

from functools import partial

from p4reduce_lab.bench.case import NETWORKS, TRAINING_PACKAGES, Case, Run, Threshold
from p4reduce_lab.bench.cluster import Cluster, running_cluster
from p4reduce_lab.bench.links import GBIT_1, MBIT_100, VETH
from p4reduce_lab.bench.measuring import BACKENDS, CALLS, measure_collective, measure_steps

WORKERS = 4
BYTES, QUICK_BYTES = (4_000, 64_000, 400_000), (4_000, 64_000)
STEPS = 10
"""Steps in one turn of a backend."""
_LIMIT_S = 30.0

_LINKS = {VETH: "unshaped veth", GBIT_1: "1 Gbit/s"}
SMALL_SUM = {
    (link, size): Threshold(f"all_reduce of {size // 1000} KB in a row, {words}: gloo / backend p4reduce", 1 / 0.6)
    for link, words in _LINKS.items()
    for size in (4_000, 64_000)
}
COPIES = {
    (link, name, size): Threshold(
        f"{name} of {size // 1000} KB in a row, {words}: gloo / backend p4reduce", 1 / 2 if link is VETH else 1 / 1.3
    )
    for link, words in _LINKS.items()
    for name in ("broadcast", "all_gather")
    for size in BYTES
}
STEP = {
    (MBIT_100, "backend"): Threshold("DDP step without a hook, 100 Mbit/s: gloo / backend p4reduce", 1.35),
    (GBIT_1, "backend"): Threshold("DDP step without a hook, 1 Gbit/s: gloo / backend p4reduce", 2.5),
    (GBIT_1, "FSDP2"): Threshold("FSDP2 step, 1 Gbit/s: gloo / backend p4reduce", 1.2),
}


def measure(run: Run) -> None:
    """Measure collectives of 4 to 400 KB without a shaper and on 1 Gbit/s, and training steps on shaped links."""
    with running_cluster(run, VETH, WORKERS) as cluster:
        for link in _LINKS:
            cluster.shape(link)
            for name in ("all_reduce", "broadcast", "all_gather"):
                for size in QUICK_BYTES if run.quick else BYTES:
                    _collective(cluster, name, size)
        _steps(cluster, "backend")
        _steps(cluster, "FSDP2")
        cluster.shape(MBIT_100)
        _steps(cluster, "backend")


def _collective(cluster: Cluster, name: str, size: int) -> None:
    run, link = cluster.run, cluster.link
    what = f"of {size:,} bytes a rank, {WORKERS} workers"
    measure = partial(measure_collective, cluster, name=name, size=size, limit_s=_LIMIT_S)
    measure(f"{name} after a pause {what}", calls=1, turns=8 * run.repetitions)
    found = measure(f"{name} in a row {what}", calls=CALLS, turns=2 * run.repetitions)
    threshold = SMALL_SUM.get((link, size)) if name == "all_reduce" else COPIES[link, name, size]
    if threshold is not None:
        run.ratio(threshold.name, found["gloo"], found["p4reduce"])


def _steps(cluster: Cluster, variant: str) -> None:
    found = measure_steps(cluster, [f"{backend} {variant}" for backend in BACKENDS], STEPS)
    cluster.run.ratio(STEP[cluster.link, variant].name, *(found[f"{backend} {variant}"] for backend in BACKENDS))


CASE = Case(
    "backend",
    "the torch.distributed backend beside gloo: all_reduce, broadcast and all_gather, DDP without a hook, FSDP2",
    measure,
    needs=(NETWORKS, TRAINING_PACKAGES),
    thresholds=(*SMALL_SUM.values(), *COPIES.values(), *STEP.values()),
    limit_s=600.0,
)

"""The backend p4reduce of torch.distributed beside gloo's: collectives, DDP without a hook, FSDP2."""

from __future__ import annotations

from functools import partial
from typing import Any

from p4reduce_lab.bench.case import NETWORKS, Case, Run, Series, Threshold
from p4reduce_lab.bench.cluster import Cluster, running_cluster, summed_up
from p4reduce_lab.bench.links import GBIT_1, MBIT_100, Link
from p4reduce_lab.bench.numbers import in_turn
from p4reduce_lab.errors import MissingToolError
from p4reduce_lab.training import missing_packages

WORKERS = 4
BACKENDS = ("gloo", "p4reduce")
BYTES, QUICK_BYTES = (4_000, 64_000, 400_000), (4_000, 64_000)
_STEPS, _WARM_UP_STEPS = 4, 4
_LIMIT_S = 30.0

SMALL_SUM = {
    size: Threshold(f"all_reduce of {size // 1000} KB, 1 Gbit/s: gloo / backend p4reduce", 1 / 0.6)
    for size in (4_000, 64_000)
}
COPIES = {
    (name, size): Threshold(f"{name} of {size // 1000} KB, 1 Gbit/s: gloo / backend p4reduce", 1 / 1.3)
    for name in ("broadcast", "all_gather")
    for size in BYTES
}
STEP = {
    (MBIT_100, "backend"): Threshold("DDP step without a hook, 100 Mbit/s: gloo / backend p4reduce", 1.35),
    (GBIT_1, "backend"): Threshold("DDP step without a hook, 1 Gbit/s: gloo / backend p4reduce", 2.5),
    (GBIT_1, "FSDP2"): Threshold("FSDP2 step, 1 Gbit/s: gloo / backend p4reduce", 1.2),
}


def measure(run: Run) -> None:
    """Measure collectives of 4 to 400 KB on 1 Gbit/s, and training steps on both links."""
    if missing := missing_packages():
        raise MissingToolError(f"{', '.join(missing)} not installed: pip install 'p4reduce[demo]'")
    with running_cluster(run, GBIT_1, WORKERS) as cluster:
        for name in ("all_reduce", "broadcast", "all_gather"):
            for size in QUICK_BYTES if run.quick else BYTES:
                _collective(cluster, name, size)
        _steps(cluster, GBIT_1, "backend")
        _steps(cluster, GBIT_1, "FSDP2")
        cluster.shape(MBIT_100)
        _steps(cluster, MBIT_100, "backend")


def _collective(cluster: Cluster, name: str, size: int) -> None:
    run = cluster.run
    arguments: dict[str, Any] = {"name": name, "elements": size // 4, "dtype": "float32"}
    for backend in BACKENDS:
        cluster.timed("collective", peer=backend, **arguments)
    found = in_turn(
        {backend: partial(cluster.timed, "collective", peer=backend, **arguments) for backend in BACKENDS},
        4 * run.repetitions,
        _LIMIT_S,
        at_least=5,
    )
    for backend in BACKENDS:
        values = [1000 * second for second in found[backend]]
        run.add(Series(f"{name} of {size:,} bytes a rank, {WORKERS} workers", backend, str(cluster.link), "ms", values))
    threshold = SMALL_SUM.get(size) if name == "all_reduce" else COPIES[name, size]
    if threshold is not None:
        run.ratio(threshold.name, found["gloo"], found["p4reduce"])


def _steps(cluster: Cluster, link: Link, way: str) -> None:
    run = cluster.run
    peers = [f"{backend} {way}" for backend in BACKENDS]
    counts: dict[str, dict[str, list[float]]] = {peer: {} for peer in peers}
    for peer in peers:
        parameters = cluster.workers.ask("train", peer=peer, steps=_WARM_UP_STEPS)[0]["parameters"]

    def step(peer: str) -> float:
        return cluster.timed("train", counts[peer], peer=peer, steps=_STEPS) / _STEPS

    found = in_turn({peer: partial(step, peer) for peer in peers}, run.repetitions, _LIMIT_S, at_least=3)
    for peer in peers:
        values = [1000 * second for second in found[peer]]
        what = f"a step of {parameters:,} parameters, {WORKERS} workers"
        run.add(Series(what, peer, str(link), "ms", values, {}, summed_up(counts[peer])))
    run.ratio(STEP[link, way].name, *(found[peer] for peer in peers))


CASE = Case(
    "backend",
    "the torch.distributed backend beside gloo: all_reduce, broadcast and all_gather, DDP without a hook, FSDP2",
    measure,
    needs=(NETWORKS,),
    thresholds=(*SMALL_SUM.values(), *COPIES.values(), *STEP.values()),
    limit_s=600.0,
)

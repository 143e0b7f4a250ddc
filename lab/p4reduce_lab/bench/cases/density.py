"""Time against the share of blocks that are not zero, as OmniReduce measured it: gloo moves all, p4reduce those."""

from __future__ import annotations

from functools import partial

from p4reduce_lab.bench.case import NETWORKS, Case, Run, Series, Threshold
from p4reduce_lab.bench.cluster import Cluster, running_cluster, summed_up
from p4reduce_lab.bench.links import GBIT_1, MBIT_100, Link
from p4reduce_lab.bench.measuring import FLOAT_BYTES, MEGABYTE
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
    run, elements = cluster.run, megabytes * MEGABYTE // FLOAT_BYTES
    points = [
        (density, pattern)
        for density in (QUICK_DENSITIES if run.quick else DENSITIES)
        for pattern in (PATTERNS if density < 1 and not run.quick else (ALL_OVERLAP,))
        if pattern != NONE_OVERLAP or WORKERS * density <= 1
    ]
    counts: dict[object, dict[str, list[float]]] = {point: {} for point in ("gloo", *points)}

    def gloo() -> float:
        return cluster.all_reduce("gloo", elements, counts["gloo"])

    def ours(density: float, pattern: str) -> float:
        return cluster.all_reduce("p4reduce", elements, counts[density, pattern], density=density, pattern=pattern)

    gloo()
    for density, pattern in points:
        cluster.all_reduce("p4reduce", elements, density=density, pattern=pattern, check=density <= 0.1)
    counts["gloo"].clear()
    peers = {str(point): partial(ours, *point) for point in points}
    found = run.in_turn({"gloo": gloo, **peers}, limit_s=_LIMIT_S, at_least=3)
    size = f"{megabytes} MB, {WORKERS} workers"
    dense = [1000 * s for s in found["gloo"]]
    sized = {"size": FLOAT_BYTES * elements, "ranks": WORKERS}
    counted = summed_up(counts["gloo"])
    run.add(Series(f"all blocks, {size}", "gloo", str(link), "ms", dense, {"density": 1.0}, counted, **sized))
    for density, pattern in points:
        values = [1000 * s for s in found[str((density, pattern))]]
        at: dict[str, float | str] = {"density": density, "pattern": pattern}
        what = f"{density:.0%} of blocks, {pattern}, {size}"
        counted = summed_up(counts[density, pattern])
        run.add(Series(what, "p4reduce", str(link), "ms", values, at, counted, **sized))
        threshold = THRESHOLDS.get((link, density))
        if threshold is not None and pattern == ALL_OVERLAP:
            run.ratio(threshold.name, dense, values)


CASE = Case(
    "density",
    "time against the share of blocks that are not zero (random, all-overlap, none-overlap)",
    measure,
    needs=(NETWORKS,),
    thresholds=tuple(THRESHOLDS.values()),
)

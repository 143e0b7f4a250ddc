"""Frames of 8 KB beside frames of 1 KB and gloo, on loopback: dense sums, and what larger blocks cost sparse ones."""

from __future__ import annotations

from p4reduce_lab.bench.case import Case, Run, Series, Threshold
from p4reduce_lab.bench.cases.dense import FLOAT_BYTES, MEGABYTE
from p4reduce_lab.bench.cases.wire import bfloat16
from p4reduce_lab.bench.cluster import running_cluster, summed_up
from p4reduce_lab.bench.links import LOOPBACK

WORKERS = 4
SIZES_MB, QUICK_SIZES_MB = (4, 25), (4,)
DENSITIES, QUICK_DENSITIES = (0.1, 0.01), (0.1,)
GEOMETRIES = ("default", "jumbo")
_ROUNDS = 2
"""How often each geometry's switch is started, in turn."""
_BLOCK_WORDS = {"default": 32, "jumbo": 256}

DENSE = Threshold("jumbo frames, loopback, 25 MB, 4 workers: gloo / p4reduce", 0.9)
DENSE_SMALL = Threshold("jumbo frames, loopback, 4 MB, 4 workers: gloo / p4reduce", 0.6)
BFLOAT16 = Threshold("bfloat16, jumbo frames, loopback, 25 MB, 4 workers: gloo / backend p4reduce", 0.9)
_DENSE = {25: DENSE, 4: DENSE_SMALL}


def measure(run: Run) -> None:
    """Measure gloo and both geometries in turn."""
    sizes = QUICK_SIZES_MB if run.quick else SIZES_MB
    densities = QUICK_DENSITIES if run.quick else DENSITIES
    points = [("gloo", size, 1.0) for size in sizes]
    points += [(name, size, density) for name in GEOMETRIES for size in sizes for density in (1.0, *densities)]
    found: dict[tuple[str, int, float], list[float]] = {point: [] for point in points}
    counts: dict[tuple[str, int, float], dict[str, list[float]]] = {point: {} for point in points}
    for _ in range(_ROUNDS):
        for geometry in GEOMETRIES:
            with running_cluster(run, LOOPBACK, WORKERS, gloo=geometry == "default", pipeline=geometry) as cluster:
                for name, size, density in points:
                    if name != geometry and (name, geometry) != ("gloo", "default"):
                        continue
                    point, elements = (name, size, density), size * MEGABYTE // FLOAT_BYTES
                    peer = "gloo" if name == "gloo" else "p4reduce"
                    cluster.all_reduce(peer, elements, density=density, check=density <= 0.1)
                    times = [
                        cluster.all_reduce(peer, elements, counts[point], density=density)
                        for _ in range(run.repetitions)
                    ]
                    found[point] += times
    for point in points:
        _report(run, point, found[point], counts[point])
    for size in sizes:
        if not run.quick:
            run.ratio(_DENSE[size].name, found["gloo", size, 1.0], found["jumbo", size, 1.0])
    with running_cluster(run, LOOPBACK, WORKERS, pipeline="jumbo") as cluster:
        bfloat16(cluster, LOOPBACK, BFLOAT16, "frames of 8 KB")
    run.note("The share of blocks that are not zero is of blocks of 32 words, which a block of 256 words has eight of.")


def _report(run: Run, point: tuple[str, int, float], seconds: list[float], counts: dict[str, list[float]]) -> None:
    name, size, density = point
    share = "dense" if density == 1 else f"{density:.0%} of blocks"
    peer = "gloo" if name == "gloo" else f"p4reduce, blocks of {_BLOCK_WORDS[name]} words"
    sized = {"size": size * MEGABYTE, "ranks": WORKERS}
    values = [1000 * second for second in seconds]
    run.add(
        Series(
            f"{share}, {size} MB, {WORKERS} workers", peer, str(LOOPBACK), "ms", values, {}, summed_up(counts), **sized
        )
    )


CASE = Case(
    "jumbo",
    "frames of 8 KB beside frames of 1 KB and gloo, on loopback",
    measure,
    thresholds=(DENSE, DENSE_SMALL, BFLOAT16),
)

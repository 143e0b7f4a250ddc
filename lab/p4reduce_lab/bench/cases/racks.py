"""Workers in racks, each with a switch below another one, beside the same workers at one switch."""

from __future__ import annotations

from p4reduce_lab.bench.case import NETWORKS, Case, Run, Series, Threshold
from p4reduce_lab.bench.cases.dense import FLOAT_BYTES, MEGABYTE
from p4reduce_lab.bench.cluster import running_cluster, summed_up
from p4reduce_lab.bench.links import MBIT_100

WORKERS, RACKS, MEGABYTES, QUICK_MEGABYTES = 4, 2, 4, 1
_ROUNDS = 3
"""How often each network is built, in turn."""

TREE = Threshold("racks, 100 Mbit/s, 4 MB, 4 workers: one switch / 2 racks", 0.91)


def measure(run: Run) -> None:
    """Build both networks in turn, and measure the same all-reduce in each."""
    elements = (QUICK_MEGABYTES if run.quick else MEGABYTES) * MEGABYTE // FLOAT_BYTES
    found: dict[int, list[float]] = {1: [], RACKS: []}
    counts: dict[int, dict[str, list[float]]] = {1: {}, RACKS: {}}
    for _ in range(_ROUNDS):
        for racks, seconds in found.items():
            with running_cluster(run, MBIT_100, WORKERS, gloo=False, racks=racks) as cluster:
                cluster.all_reduce("p4reduce", elements, check=True)
                before = cluster.trunk_bytes()
                for _ in range(run.repetitions):
                    seconds.append(cluster.all_reduce("p4reduce", elements, counts[racks]))
                if racks > 1:
                    for name, now, then in zip(("up", "down"), cluster.trunk_bytes(), before, strict=True):
                        counted = counts[racks].setdefault(f"B {name} all trunks, barriers too", [])
                        counted.append((now - then) / run.repetitions)
    for racks, seconds in found.items():
        where = "one switch" if racks == 1 else f"{racks} racks"
        times = [1000 * second for second in seconds]
        what = f"dense float32, {FLOAT_BYTES * elements / MEGABYTE:g} MB, {WORKERS} workers, {where}"
        sized = {"size": FLOAT_BYTES * elements, "ranks": WORKERS}
        run.add(Series(what, "p4reduce", str(MBIT_100), "ms", times, {}, summed_up(counts[racks]), **sized))
    run.ratio(TREE.name, found[1], found[RACKS])


CASE = Case(
    "racks",
    "all-reduces over a tree of switches and over one switch, in turn",
    measure,
    needs=(NETWORKS,),
    thresholds=(TREE,),
)

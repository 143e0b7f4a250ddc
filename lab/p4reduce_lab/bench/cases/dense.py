"""Dense float32 all-reduces beside gloo, on shaped links and on loopback."""

from __future__ import annotations

from p4reduce_lab.bench.case import Bar, Case, Run, Series
from p4reduce_lab.bench.cluster import Cluster, running_cluster, summed_up
from p4reduce_lab.bench.network import GBIT_1, GBIT_1_SMALL_BURST, LOOPBACK, MBIT_100, Link
from p4reduce_lab.bench.numbers import in_turn

MEGABYTE = 1 << 20
FLOAT_BYTES = 4
_LIMIT_S = 60.0

ON_100 = Bar("dense, 100 Mbit/s, 4 MB, 4 workers: gloo / p4reduce", 1.4)
ON_1000 = Bar("dense, 1 Gbit/s, burst 64k, 25 MB, 4 workers: gloo / p4reduce", 3.0)
ON_1000_CUT = Bar("dense, 1 Gbit/s, burst 16k, 25 MB, 4 workers: gloo / p4reduce", 1.1)
ON_LOOPBACK = Bar("dense, loopback, 25 MB, 4 workers: gloo / p4reduce", 0.9)
ON_LOOPBACK_SMALL = Bar("dense, loopback, 4 MB, 4 workers: gloo / p4reduce", 0.6)
EIGHT_WORKERS = Bar("dense, 100 Mbit/s, 4 MB, 8 workers: gloo / p4reduce", 1.5)


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
        compare(cluster, GBIT_1_SMALL_BURST, 25, ON_1000_CUT)
    with running_cluster(run, MBIT_100, 8) as cluster:
        compare(cluster, MBIT_100, 4, EIGHT_WORKERS)


def compare(cluster: Cluster, link: Link, megabytes: float, bar: Bar | None) -> dict[str, Series]:
    """Measure both peers in turn, hand in their series, and the ratio for the bar; return the series by peer."""
    run = cluster.run
    if cluster.link != link:
        cluster.shape(link)
    if run.quick and bar is not None:
        megabytes = min(megabytes, 8)
    elements = int(megabytes * MEGABYTE) // FLOAT_BYTES
    counts: dict[str, dict[str, list[float]]] = {"gloo": {}, "p4reduce": {}}
    for peer in counts:
        cluster.all_reduce(peer, elements, check=True)  # also warms up
    found = in_turn(
        {peer: (lambda peer=peer: cluster.all_reduce(peer, elements, counts[peer])) for peer in counts},  # type: ignore[misc]
        run.repetitions,
        _LIMIT_S,
        at_least=3,
    )
    what = f"dense float32, {megabytes:g} MB, {cluster.world_size} workers"
    at: dict[str, float | str] = {"bytes": FLOAT_BYTES * elements, "workers": cluster.world_size}
    series = {
        peer: run.add(Series(what, peer, str(link), "ms", [1000 * s for s in found[peer]], at, summed_up(counts[peer])))
        for peer in counts
    }
    if bar is not None:
        run.bar(bar.name, series["gloo"].values, series["p4reduce"].values)
    return series


CASE = Case(
    "dense",
    "dense float32 all-reduces: gloo and p4reduce in turn",
    measure,
    bars=(ON_100, ON_1000, ON_1000_CUT, ON_LOOPBACK, ON_LOOPBACK_SMALL, EIGHT_WORKERS),
)

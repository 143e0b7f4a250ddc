"""A ring of hosts in INCEPTIONN's numbers beside gloo's dense sum and the switch's, on shaped links; and the codec."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from p4reduce.codecs.inceptionn import Inceptionn
from p4reduce_lab.bench.case import NETWORKS, Case, Run, Series, Threshold
from p4reduce_lab.bench.cases.dense import FLOAT_BYTES
from p4reduce_lab.bench.cluster import Cluster, running_cluster, summed_up
from p4reduce_lab.bench.links import GBIT_1, GBIT_1_LARGE_BURST, MBIT_100, Link
from p4reduce_lab.bench.numbers import in_turn, least_cpu_seconds, median
from p4reduce_lab.bench.tensors import Kind, tensor

ELEMENTS = 1_149_010
"""As many as the parameters of INCEPTIONN's net for digits."""
WORKERS = 4
BOUNDS = {"ring 2^-10": 2.0**-10, "ring 2^-6": 2.0**-6}
PEERS = ("gloo", "p4reduce", *BOUNDS)
_TURNS = 5
_LIMIT_S = 60.0

THRESHOLDS = {
    MBIT_100: Threshold("ring 2^-10, 100 Mbit/s, 4.6 MB, 4 workers: gloo dense / ring", 1.7),
    GBIT_1: Threshold("ring 2^-10, 1 Gbit/s, burst 64k, 4.6 MB, 4 workers: gloo dense / ring", 1.0),
    GBIT_1_LARGE_BURST: Threshold("ring 2^-10, 1 Gbit/s, burst 128k, 4.6 MB, 4 workers: gloo dense / ring", 1.0),
}
CODEC = Threshold("INCEPTIONN 2^-10 on one core: 5 ns / encode and decode of a number", 1.0)


def measure(run: Run) -> None:
    """Measure the codec in this process, then all links with the same workers."""
    codec(run)
    with running_cluster(run, MBIT_100, WORKERS) as cluster:
        for link in THRESHOLDS:
            on_link(cluster, link)
    run.note("Normally distributed numbers, which the codec shortens less than gradients (docs/study.md).")


def codec(run: Run) -> None:
    """Measure encode and decode, each alone, for every bound in turn."""
    values = tensor(Kind(ELEMENTS), 0, WORKERS)

    def nanoseconds(work: Callable[[], object]) -> float:
        return 1e9 * least_cpu_seconds(lambda _: work(), lambda: None, _TURNS) / ELEMENTS

    peers: dict[str, Callable[[], float]] = {}
    sizes = {}
    for name, bound in BOUNDS.items():
        own = Inceptionn(bound)
        data = own.encode(values)
        own.decode(data, ELEMENTS)  # the kernels are there now
        sizes[name] = FLOAT_BYTES * ELEMENTS / len(data)
        peers[f"{name}, encode"] = partial(nanoseconds, partial(own.encode, values))
        peers[f"{name}, decode"] = partial(nanoseconds, partial(own.decode, data, ELEMENTS))
    found = in_turn(peers, run.repetitions)
    for peer, times in found.items():
        times_smaller = {"float32 / this": sizes[peer.partition(",")[0]]}
        run.add(
            Series(
                f"{ELEMENTS:,} numbers, one core", peer, "in one process", "CPU ns a number", times, {}, times_smaller
            )
        )
    both = [sum(pair) for pair in zip(found["ring 2^-10, encode"], found["ring 2^-10, decode"], strict=True)]
    run.ratio(CODEC.name, [5.0], both)


def on_link(cluster: Cluster, link: Link) -> None:
    """Measure all peers in turn on this link."""
    run = cluster.run
    if cluster.link != link:
        cluster.shape(link)
    counts: dict[str, dict[str, list[float]]] = {peer: {} for peer in PEERS}
    for peer in PEERS:
        cluster.all_reduce(peer, ELEMENTS, check=True)

    def once(peer: str) -> float:
        return cluster.all_reduce(peer, ELEMENTS, counts[peer])

    found = in_turn({peer: partial(once, peer) for peer in PEERS}, run.repetitions, _LIMIT_S, at_least=1)
    dense_bytes = median(counts["gloo"]["B up a worker"])
    for peer, seconds in found.items():
        counted = summed_up(counts[peer])
        counted["gloo's bytes / this"] = dense_bytes / counted["B up a worker"]
        what = f"mean of {ELEMENTS:,} float32, {WORKERS} workers"
        times = [1000 * second for second in seconds]
        run.add(Series(what, peer, str(link), "ms", times, {}, counted, size=FLOAT_BYTES * ELEMENTS, ranks=WORKERS))
    run.ratio(THRESHOLDS[link].name, found["gloo"], found["ring 2^-10"])


CASE = Case(
    "ring",
    "a ring of hosts in INCEPTIONN's numbers, gloo's dense sum and the switch's, in turn; encode and decode",
    measure,
    needs=(NETWORKS,),
    thresholds=(*THRESHOLDS.values(), CODEC),
)

"""Dense all-reduces of several ranks a host, beside gloo: the ranks of a host have one link, or no link at all.

And what AdaComp sends over the links of two hosts of two ranks.
"""

from __future__ import annotations

from p4reduce_lab.bench.case import TRAINING_PACKAGES, Case, Run, Series, Threshold
from p4reduce_lab.bench.cluster import Cluster, running_cluster
from p4reduce_lab.bench.links import GBIT_1, LOOPBACK, MBIT_100, Link
from p4reduce_lab.bench.measuring import STEPS, measure_dense

FLOAT32, SIXTEEN = "p4reduce", "p4reduce 16"
LINKS = {
    (2, MBIT_100, 2): (1.25, 2.5),
    (4, MBIT_100, 2): (1.4, 2.5),
    (2, GBIT_1, 26): (2.2, 4),
    (4, GBIT_1, 8): (2.2, 3.5),
}
"""(ranks a host, link, megabytes) -> the least ratio of gloo's time to that of two hosts, in 32 and in 16 bits."""
RANKS_A_HOST = (1, 2, 4, 8)
LEAST_SHARE = 1 / 1.12
"""The least share that the tensor's bytes may have in those that a host's link carries each way."""
MEMORY = {4: 3.0, 26: 3.0}
"""Megabytes -> the least ratio of gloo's time to that of one host of 4 ranks, in 32 bits."""

ADACOMP = "p4reduce AdaComp"
BYTES = Threshold(
    "DDP step with AdaComp, 2 hosts of 2 ranks, 100 Mbit/s: bytes on a host's link, each rank for itself / over hosts",
    1 / 0.6,
)


def threshold(ranks: int, link: Link, megabytes: int, peer: str, least: float) -> Threshold:
    """Return the threshold of a row."""
    hosts = "1 host" if link.on_loopback else f"2 hosts, {link.name}"
    return Threshold(f"{hosts} of {ranks} ranks, {megabytes} MB: gloo / {peer}", least)


def bytes_on_link(ranks: int, way: str) -> Threshold:
    """Return the threshold of the bytes on a link, "up" or "down"."""
    return Threshold(f"2 hosts of {ranks} ranks: bytes of the tensor / {way} a link", LEAST_SHARE)


def measure(run: Run) -> None:
    """Measure one host of 4 ranks, then two hosts of 1, 2, 4 and 8."""
    with running_cluster(run, LOOPBACK, 4, ranks_per_host=4) as cluster:
        for megabytes, least in MEMORY.items():
            found = measure_dense(cluster, megabytes, ("gloo", FLOAT32))
            run.ratio(threshold(4, LOOPBACK, megabytes, FLOAT32, least).name, found["gloo"], found[FLOAT32])
    if not run.networks:
        run.skip("hosts on shaped links", "that takes root")
        return
    alone: list[float] = []
    if TRAINING_PACKAGES.there():
        with running_cluster(run, MBIT_100, 4, ranks_per_host=2, share=False) as cluster:
            alone = step_bytes(cluster, "each rank for itself")
    else:
        run.skip(BYTES.name, f"that takes {TRAINING_PACKAGES.what}")
    for ranks in RANKS_A_HOST:
        with running_cluster(run, MBIT_100, 2 * ranks, ranks_per_host=ranks) as cluster:
            if alone and ranks == 2:
                run.ratio(BYTES.name, alone, step_bytes(cluster, "over hosts"))
            for link, megabytes in sorted({(MBIT_100, 2), *(row[1:] for row in LINKS if row[0] == ranks)}, key=str):
                cluster.shape(link)
                found = measure_dense(cluster, megabytes, ("gloo", FLOAT32, SIXTEEN))
                for peer, least in zip((FLOAT32, SIXTEEN), LINKS.get((ranks, link, megabytes), ()), strict=False):
                    run.ratio(threshold(ranks, link, megabytes, peer, least).name, found["gloo"], found[peer])
                if ranks > 1 and link == MBIT_100:
                    (summed,) = (one for one in run.findings.series[-3:] if one.peer == FLOAT32)
                    for way in ("up", "down"):
                        run.ratio(bytes_on_link(ranks, way).name, [summed.size], [summed.counted[f"B {way} a worker"]])


def step_bytes(cluster: Cluster, how: str) -> list[float]:
    """Return the bytes of training steps with AdaComp on a host's link, both ways, of one step."""
    counts: dict[str, list[float]] = {}
    cluster.workers.ask("train", peer=ADACOMP, steps=STEPS)
    for _ in range(cluster.run.repetitions):
        cluster.timed("train", counts, peer=ADACOMP, steps=STEPS)
    both = zip(counts["B up a worker"], counts["B down a worker"], strict=True)  # of the link that its ranks share
    values = [(up + down) / STEPS for up, down in both]
    cluster.run.add(Series("a step with AdaComp, 2 hosts of 2 ranks", how, str(cluster.link), "B on a link", values))
    return values


CASE = Case(
    "hosts",
    "several ranks behind one link: dense float32 all-reduces, gloo and p4reduce in turn; bytes of AdaComp",
    measure,
    thresholds=(
        BYTES,
        *(threshold(4, LOOPBACK, megabytes, FLOAT32, least) for megabytes, least in MEMORY.items()),
        *(
            threshold(*row, peer, least)
            for row, leasts in LINKS.items()
            for peer, least in zip((FLOAT32, SIXTEEN), leasts, strict=True)
        ),
        *(bytes_on_link(ranks, way) for ranks in RANKS_A_HOST[1:] for way in ("up", "down")),
    ),
    limit_s=600.0,
)

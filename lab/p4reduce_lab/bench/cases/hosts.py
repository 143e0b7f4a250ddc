"""Dense all-reduces of several ranks a host, beside gloo: the ranks of a host have one link, or no link at all."""

from __future__ import annotations

from p4reduce_lab.bench.case import Case, Run, Threshold
from p4reduce_lab.bench.cluster import running_cluster
from p4reduce_lab.bench.links import GBIT_1, LOOPBACK, MBIT_100, Link
from p4reduce_lab.bench.measuring import measure_dense

FLOAT32, SIXTEEN = "p4reduce", "p4reduce 16"
LINKS = {
    (2, MBIT_100, 2): (1.25, 2.5),
    (4, MBIT_100, 2): (1.4, 2.5),
    (2, GBIT_1, 26): (2.2, 4),
    (4, GBIT_1, 8): (2.2, 3.5),
}
"""By ranks a host, link and megabytes: by how much two hosts are to be faster than gloo, in 32 and in 16 bits."""
MEMORY = {4: 3.0, 26: 3.0}
"""By megabytes: the same of one host of 4 ranks, in 32 bits."""


def threshold(ranks: int, link: Link, megabytes: int, peer: str, least: float) -> Threshold:
    """Return the threshold of a row."""
    hosts = "1 host" if link.on_loopback else f"2 hosts, {link.name}"
    return Threshold(f"{hosts} of {ranks} ranks, {megabytes} MB: gloo / {peer}", least)


def measure(run: Run) -> None:
    """Measure one host of 4 ranks, then two hosts of 2 and 4."""
    with running_cluster(run, LOOPBACK, 4, ranks_per_host=4) as cluster:
        for megabytes, least in MEMORY.items():
            found = measure_dense(cluster, megabytes, ("gloo", FLOAT32))
            run.ratio(threshold(4, LOOPBACK, megabytes, FLOAT32, least).name, found["gloo"], found[FLOAT32])
    if not run.networks:
        run.skip("hosts on shaped links", "that takes root")
        return
    for ranks in (2, 4):
        rows = {row: least for row, least in LINKS.items() if row[0] == ranks}
        with running_cluster(run, MBIT_100, 2 * ranks, ranks_per_host=ranks) as cluster:
            for (_, link, megabytes), leasts in rows.items():
                cluster.shape(link)
                found = measure_dense(cluster, megabytes, ("gloo", FLOAT32, SIXTEEN))
                for peer, least in zip((FLOAT32, SIXTEEN), leasts, strict=True):
                    name = threshold(ranks, link, megabytes, peer, least).name
                    run.ratio(name, found["gloo"], found[peer])


CASE = Case(
    "hosts",
    "dense float32 all-reduces of several ranks behind one link: gloo and p4reduce in turn",
    measure,
    thresholds=(
        *(threshold(4, LOOPBACK, megabytes, FLOAT32, least) for megabytes, least in MEMORY.items()),
        *(
            threshold(*row, peer, least)
            for row, leasts in LINKS.items()
            for peer, least in zip((FLOAT32, SIXTEEN), leasts, strict=True)
        ),
    ),
)

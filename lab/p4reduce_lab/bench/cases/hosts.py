"""Dense all-reduces of several ranks a host, beside gloo: the ranks of a host have one link, or no link at all.

And what AdaComp sends over the links of two hosts of two ranks.
"""

from __future__ import annotations

from p4reduce_lab.bench.case import TRAINING_PACKAGES, Case, Run, Series, Threshold
from p4reduce_lab.bench.cluster import Cluster, running_cluster
from p4reduce_lab.bench.links import GBIT_1, LOOPBACK, MBIT_100, Link
from p4reduce_lab.bench.measuring import MEGABYTE, STEPS
from p4reduce_lab.bench.rows import TENSOR, Row, measure_rows, thresholds

RATIOS = "gloo / p4reduce", "gloo / p4reduce 16"
BYTES_ON_LINK = tuple(f"{TENSOR} / bytes {way} of p4reduce" for way in ("up", "down"))
LEAST_SHARE = 1 / 1.12
"""The least share that the tensor's bytes may have in those that a host's link carries each way."""


def _row(ranks: int, link: Link, megabytes: int, *least: float) -> Row:
    at_least = dict(zip(RATIOS, least, strict=False))
    if link == MBIT_100 and ranks > 1:
        at_least |= dict.fromkeys(BYTES_ON_LINK, LEAST_SHARE)
    return Row(megabytes * MEGABYTE, link, 2 * ranks, at_least, ("p4reduce", "p4reduce 16"), ranks_per_host=ranks)


ROWS = (
    Row(4 * MEGABYTE, LOOPBACK, 4, {RATIOS[0]: 3.0}, ranks_per_host=4),
    Row(26 * MEGABYTE, LOOPBACK, 4, {RATIOS[0]: 3.0}, ranks_per_host=4),
    _row(1, MBIT_100, 2),
    _row(2, MBIT_100, 2, 1.25, 2.5),
    _row(2, GBIT_1, 26, 2.2, 4),
    _row(4, MBIT_100, 2, 1.4, 2.5),
    _row(4, GBIT_1, 8, 2.2, 3.5),
    _row(8, MBIT_100, 2),
)
ADACOMP = "p4reduce AdaComp"
BYTES = Threshold(
    "DDP step with AdaComp, 2 hosts of 2 ranks, 100 Mbit/s: bytes on a host's link, each rank for itself / over hosts",
    1 / 0.6,
)


def measure(run: Run) -> None:
    """Measure all rows, then the bytes of AdaComp's steps with the ranks for themselves and over hosts."""
    measure_rows(run, ROWS)
    if not run.networks or not TRAINING_PACKAGES.there():
        run.skip(BYTES.name, f"that takes root, and {TRAINING_PACKAGES.what}")
        return
    steps = {}
    for how, share in (("each rank for itself", False), ("over hosts", True)):
        with running_cluster(run, MBIT_100, 4, ranks_per_host=2, share=share) as cluster:
            steps[how] = step_bytes(cluster, how)
    run.ratio(BYTES.name, *steps.values())


def step_bytes(cluster: Cluster, how: str) -> list[float]:
    """Return the bytes of training steps with AdaComp on a host's link, both ways, of one step."""
    counts: dict[str, list[float]] = {}
    cluster.ask("begin_training", peer=ADACOMP)
    cluster.ask("continue_training", peer=ADACOMP, steps=STEPS, apart=True)
    for _ in range(cluster.run.repetitions):
        cluster.ask("continue_training", counts, peer=ADACOMP, steps=STEPS, apart=True)
    both = zip(counts["B up a worker"], counts["B down a worker"], strict=True)  # of the link that its ranks share
    values = [(up + down) / STEPS for up, down in both]
    cluster.run.add(Series("a step with AdaComp, 2 hosts of 2 ranks", how, str(cluster.link), "B on a link", values))
    return values


CASE = Case(
    "hosts",
    "several ranks behind one link: dense float32 all-reduces, gloo, Open MPI and p4reduce in turn; bytes of AdaComp",
    measure,
    thresholds=(BYTES, *thresholds(ROWS)),
    limit_s=600.0,
)

"""Dense all-reduces of several ranks a host, beside gloo: the ranks of a host have one link, or no link at all.

And what AdaComp sends over the links of two hosts of two ranks.
"""

from __future__ import annotations

from p4reduce_lab.bench.case import TRAINING_PACKAGES, Run, Series, Threshold
from p4reduce_lab.bench.cluster import Cluster, Counts, running_cluster
from p4reduce_lab.bench.grid import case_of, rows_of
from p4reduce_lab.bench.links import MBIT_100
from p4reduce_lab.bench.rows import STEPS, measure_rows

ADACOMP = "p4reduce AdaComp"
BYTES = Threshold(
    "DDP step with AdaComp, 2 hosts of 2 ranks, 100 Mbit/s: bytes on a host's link, each rank for itself / over hosts",
    1 / 0.6,
)


def measure(run: Run) -> None:
    """Measure all rows, then the bytes of AdaComp's steps with the ranks for themselves and over hosts."""
    measure_rows(run, rows_of("hosts"))
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
    counts: Counts = {}
    cluster.ask("begin_training", peer=ADACOMP)
    cluster.ask("continue_training", peer=ADACOMP, steps=STEPS, apart=True)
    for _ in range(cluster.run.repetitions):
        cluster.ask("continue_training", counts, peer=ADACOMP, steps=STEPS, apart=True)
    both = zip(counts["B up a worker"], counts["B down a worker"], strict=True)  # of the link that its ranks share
    values = [(up + down) / STEPS for up, down in both]
    cluster.run.add(Series("a step with AdaComp, 2 hosts of 2 ranks", how, str(cluster.link), "B on a link", values))
    return values


CASE = case_of("hosts", measure, (BYTES,))

"""A training step of the study's transformer, each way of summing in turn: the seconds of docs/study-tables.md."""

from __future__ import annotations

from p4reduce_lab.bench.case import NETWORKS, TRAINING_PACKAGES, Case, Run
from p4reduce_lab.bench.cluster import running_cluster
from p4reduce_lab.bench.links import GBIT_1, MBIT_100
from p4reduce_lab.bench.training_steps import STEPS, measure_steps

PEERS = (
    "gloo dense",
    "gloo fp16",
    "gloo PowerSGD",
    "p4reduce dense",
    "p4reduce 16",
    "p4reduce 8",
    "p4reduce AdaComp",
    "p4reduce ScaleCom",
    "p4reduce BlockTopK",
)
WORKERS = 4
QUICK_STEPS = 2


def measure(run: Run) -> None:
    """Measure a step of each variant in turn, on both links."""
    with running_cluster(run, MBIT_100, WORKERS) as cluster:
        for link in (MBIT_100, GBIT_1):
            cluster.shape(link)
            measure_steps(cluster, PEERS, QUICK_STEPS if run.quick else STEPS, task="transformer")
    run.note("Made-up text. The compressors are in their first steps, ScaleCom without dense ones.")


CASE = Case(
    "transformer",
    "a DDP step of a transformer with AdamW: gloo dense, with fp16 and PowerSGD, p4reduce dense, in 16 and 8 bits, "
    "with compressors",
    measure,
    needs=(NETWORKS, TRAINING_PACKAGES),
    limit_s=600.0,
)

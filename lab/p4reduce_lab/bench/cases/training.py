"""A training step with DistributedDataParallel, each variant in turn."""

from __future__ import annotations

from functools import partial

from p4reduce_lab.bench.case import TRAINING_PACKAGES, Case
from p4reduce_lab.bench.links import GBIT_1, LOOPBACK, MBIT_100
from p4reduce_lab.bench.measuring import STEPS
from p4reduce_lab.bench.rows import STEP, Row, measure_rows, thresholds

WORKERS = 4
ADACOMP = "gloo dense / p4reduce AdaComp", "gloo fp16 / p4reduce AdaComp"
ALSO = ("gloo PowerSGD", "p4reduce dense")
ROWS = (
    Row(STEP, LOOPBACK, WORKERS, also=("gloo dense", "gloo fp16", *ALSO, "p4reduce AdaComp"), calls=STEPS),
    Row(STEP, MBIT_100, WORKERS, dict(zip(ADACOMP, (6, 3), strict=True)), ALSO, calls=STEPS),
    Row(STEP, GBIT_1, WORKERS, dict(zip(ADACOMP, (2.5, 1.1), strict=True)), ALSO, calls=STEPS),
)
CASE = Case(
    "training",
    "a DDP step: gloo dense, with fp16 and PowerSGD, p4reduce dense and AdaComp",
    partial(measure_rows, rows=ROWS),
    needs=(TRAINING_PACKAGES,),
    thresholds=thresholds(ROWS),
    limit_s=600.0,
)

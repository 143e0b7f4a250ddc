"""A training step with DistributedDataParallel, each variant in turn."""

from __future__ import annotations

import time

from p4reduce.communicator import Communicator
from p4reduce_lab.bench.case import TRAINING_PACKAGES, Case, Run, Threshold
from p4reduce_lab.bench.links import GBIT_1, LOOPBACK, MBIT_100
from p4reduce_lab.bench.measuring import FLOAT_BYTES, STEPS
from p4reduce_lab.bench.rows import STEP, Row, measure_rows, thresholds

WORKERS = 4
_COUNTED_STEPS, _BATCH = 30, 16

ADACOMP = "gloo dense / p4reduce AdaComp", "gloo fp16 / p4reduce AdaComp"
ALSO = ("gloo PowerSGD", "p4reduce dense")
ROWS = (
    Row(STEP, LOOPBACK, WORKERS, also=("gloo dense", "gloo fp16", *ALSO, "p4reduce AdaComp"), calls=STEPS),
    Row(STEP, MBIT_100, WORKERS, dict(zip(ADACOMP, (6, 3), strict=True)), ALSO, calls=STEPS),
    Row(STEP, GBIT_1, WORKERS, dict(zip(ADACOMP, (2.5, 1.1), strict=True)), ALSO, calls=STEPS),
)

SMALL_STEP = (
    Threshold("step of the demo's model with AdaComp, 4 workers: bytes of a dense ring / bytes down", 22),
    Threshold("step of the demo's model with AdaComp, 4 workers: blocks down / rounds", 3),
)


def measure(run: Run) -> None:
    """Measure the time of a step on every link."""
    count_small_step(run)
    measure_rows(run, ROWS)


def count_small_step(run: Run) -> None:
    """Count the bytes and rounds of the demo's first steps with AdaComp, over a switch in this process."""
    import torch  # only here: the list of cases does without

    from p4reduce.compressors import AdaComp
    from p4reduce.compressors.all_reduce import all_reduce_compressed
    from p4reduce.testing.local_group import LocalGroup
    from p4reduce_lab.measured_training import load_script

    script = load_script()
    (images, labels), _ = script.digits()
    torch.manual_seed(0)
    model, compressors = script.Net(), [AdaComp() for _ in range(WORKERS)]
    for compressor in compressors:
        compressor.bind(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, 0.9)

    def step(comm: Communicator) -> dict[str, torch.Tensor]:
        return all_reduce_compressed(comm, compressors[comm.rank], gradients[comm.rank])[0].means

    with LocalGroup(WORKERS, clock=lambda: time.monotonic() / 1000) as group:  # slow: it sends no frame again
        for batches in torch.arange(_COUNTED_STEPS * WORKERS * _BATCH).view(_COUNTED_STEPS, WORKERS, _BATCH):
            gradients = []
            for mine in batches % len(labels):
                loss = torch.nn.functional.cross_entropy(model(images[mine]), labels[mine])
                named = dict(model.named_parameters())
                gradients.append(dict(zip(named, torch.autograd.grad(loss, [*named.values()]), strict=True)))
            means = group.run(step)[0]
            for key, value in model.named_parameters():
                value.grad = means[key]
            optimizer.step()
        spent = group.comms[0].stats
    ring = 2 * (WORKERS - 1) / WORKERS * FLOAT_BYTES * sum(value.numel() for value in model.parameters())
    run.ratio(SMALL_STEP[0].name, [ring * _COUNTED_STEPS], [spent.bytes_down])
    run.ratio(SMALL_STEP[1].name, [spent.blocks_down], [spent.rounds])


CASE = Case(
    "training",
    "a DDP step: gloo dense, with fp16 and PowerSGD, p4reduce dense and AdaComp",
    measure,
    needs=(TRAINING_PACKAGES,),
    thresholds=(*thresholds(ROWS), *SMALL_STEP),
    limit_s=600.0,
)

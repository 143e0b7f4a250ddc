"""The backend p4reduce of torch.distributed beside gloo's: collectives, DDP without a hook, FSDP2."""

from __future__ import annotations

from functools import partial

from p4reduce_lab.bench.case import NETWORKS, TRAINING_PACKAGES, Case
from p4reduce_lab.bench.links import GBIT_1, MBIT_100, VETH, Link
from p4reduce_lab.bench.measuring import CALLS
from p4reduce_lab.bench.rows import BACKEND, STEP, Row, measure_rows, thresholds

WORKERS = 4
BYTES, QUICK_BYTES = (4_000, 64_000, 400_000), 64_000
RATIO = f"gloo / {BACKEND}"


def _rows(link: Link, copies: float) -> list[Row]:
    """Return the rows of collectives; `copies` is the least ratio of those that move whole tensors."""
    least = {"all_reduce": 1 / 0.6, "broadcast": copies, "all_gather": copies}
    return [
        Row(
            size,
            link,
            WORKERS,
            {RATIO: ratio} if size < BYTES[-1] or name != "all_reduce" else {},
            (BACKEND,),
            calls=CALLS,
            limit_s=30.0,
            collective=name,
            quick=size <= QUICK_BYTES,
        )
        for name, ratio in least.items()
        for size in BYTES
    ]


BACKENDS, FSDP = "gloo backend / p4reduce backend", "gloo FSDP2 / p4reduce FSDP2"
ROWS = (
    *_rows(VETH, 1 / 2),
    *_rows(GBIT_1, 1 / 1.3),
    Row(STEP, MBIT_100, WORKERS, {BACKENDS: 1.35}, calls=10),
    Row(STEP, GBIT_1, WORKERS, {BACKENDS: 2.5, FSDP: 1.2}, calls=10),
)
CASE = Case(
    "backend",
    "the torch.distributed backend beside gloo: all_reduce, broadcast and all_gather, DDP without a hook, FSDP2",
    partial(measure_rows, rows=ROWS),
    needs=(NETWORKS, TRAINING_PACKAGES),
    thresholds=thresholds(ROWS),
    limit_s=600.0,
)

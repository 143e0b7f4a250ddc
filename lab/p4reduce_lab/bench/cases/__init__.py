"""The cases, in the order in which they run."""

from __future__ import annotations

from p4reduce_lab.bench.case import Case
from p4reduce_lab.bench.cases import (
    backend,
    beside_tcp,
    first_run,
    hosts,
    loss,
    placement,
    sums,
    tensor_parallel,
    time_to_accuracy,
    training,
    wire,
)

CASES: tuple[Case, ...] = (
    *sums.CASES,
    hosts.CASE,
    placement.CASE,
    beside_tcp.CASE,
    training.CASE,
    backend.CASE,
    tensor_parallel.CASE,
    first_run.CASE,
    wire.CASE,
    loss.CASE,
    *time_to_accuracy.CASES,
)
BY_NAME = {case.name: case for case in CASES}

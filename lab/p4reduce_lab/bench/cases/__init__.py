"""The cases, in the order in which they run."""

from __future__ import annotations

from p4reduce_lab.bench.case import Case
from p4reduce_lab.bench.cases import beside_tcp, first_run, hosts, loss, tensor_parallel, time_to_accuracy, wire
from p4reduce_lab.bench.grid import case_of

CASES: tuple[Case, ...] = (
    case_of("dense"),
    case_of("one-host"),
    case_of("density"),
    case_of("small"),
    hosts.CASE,
    case_of("placement"),
    beside_tcp.CASE,
    case_of("training"),
    case_of("backend"),
    tensor_parallel.CASE,
    first_run.CASE,
    wire.CASE,
    loss.CASE,
    *time_to_accuracy.CASES,
)
BY_NAME = {case.name: case for case in CASES}

"""The cases, in the order in which they run."""

from __future__ import annotations

from p4reduce_lab.bench.case import Case
from p4reduce_lab.bench.cases import (
    backend,
    dense,
    density,
    first_run,
    hosts,
    loss,
    one_host,
    placement,
    switch_udp,
    switch_veth,
    time_to_accuracy,
    training,
    wire,
)

CASES: tuple[Case, ...] = (
    switch_udp.CASE,
    switch_udp.TRACE_CASE,
    switch_veth.CASE,
    dense.CASE,
    hosts.CASE,
    one_host.CASE,
    placement.CASE,
    density.CASE,
    training.CASE,
    backend.CASE,
    first_run.CASE,
    wire.CASE,
    loss.CASE,
    *time_to_accuracy.CASES,
)
BY_NAME = {case.name: case for case in CASES}

"""The cases, in the order in which they run."""

from __future__ import annotations

from p4reduce_lab.bench.case import Case
from p4reduce_lab.bench.cases import dense, density, executors, switch_udp

CASES: tuple[Case, ...] = (executors.CASE, switch_udp.CASE, dense.CASE, density.CASE)
BY_NAME = {case.name: case for case in CASES}

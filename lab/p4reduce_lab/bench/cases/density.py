"""The time of a sum against the share of blocks that are not zero."""

from __future__ import annotations

from dataclasses import replace

from p4reduce_lab.bench.case import Run
from p4reduce_lab.bench.grid import case_of, rows_of
from p4reduce_lab.bench.rows import measure_rows


def measure(run: Run) -> None:
    """Measure every density and pattern in turn with dense sums of gloo, in a quick run those of the thresholds."""
    measure_rows(run, [replace(row, also=()) if run.quick else row for row in rows_of("density")])


CASE = case_of("density", measure)

"""The cases that are rows, and what other cases measure: grid.toml, read."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from p4reduce_lab.bench.case import NETWORKS, TRAINING_PACKAGES, Case, Run, Threshold
from p4reduce_lab.bench.cluster import IN_BRIDGE, PLACEMENTS
from p4reduce_lab.bench.links import LINKS
from p4reduce_lab.bench.rows import STEP, Row, measure_rows, thresholds

GRID: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_NEEDS: Final = {"networks": NETWORKS, "training packages": TRAINING_PACKAGES}
_UNITS: Final = {"B": 1, "KB": 1 << 10, "MB": 1 << 20}


def rows_of(case: str) -> tuple[Row, ...]:
    """Return the rows of a case, in their order."""
    table = GRID[case]
    return tuple(row for own in table["rows"] for row in _rows(**table.get("each", {}) | own))


def _rows(
    link: str,
    size: str | list[str] = "",
    calls: int | dict[str, int] = 1,
    placement: str = IN_BRIDGE.name,
    also: Sequence[str] = (),
    **fields: Any,
) -> Iterator[Row]:
    """Yield a row for each size; `calls` may name a number for each."""
    fields |= {"placement": PLACEMENTS[placement], "also": tuple(also)}
    for one in [size] if isinstance(size, str) else size:
        number, _, unit = one.partition(" ")
        of_size = int(number) * _UNITS[unit] if one else STEP
        yield Row(of_size, LINKS[link], calls=calls if isinstance(calls, int) else calls[one], **fields)


def case_of(name: str, measure: Callable[[Run], None] | None = None, more: tuple[Threshold, ...] = ()) -> Case:
    """Return a case; `measure` does more than to measure its rows, and `more` are thresholds of that."""
    table, rows = GRID[name], rows_of(name)
    return Case(
        name,
        table["about"],
        measure or partial(measure_rows, rows=rows, two_cores=table.get("two_cores", False)),
        needs=tuple(_NEEDS[need] for need in table.get("needs", ())),
        thresholds=(*thresholds(rows), *more),
        limit_s=table.get("limit_s", Case.limit_s),
    )

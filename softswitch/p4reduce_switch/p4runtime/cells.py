"""What counters and meters have in common: cells of an array, and cells that belong to table entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from p4reduce_contracts.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_switch.p4runtime.bound_table import BoundTable
from p4reduce_switch.p4runtime.pipeline import Pipeline
from p4reduce_switch.p4runtime.status import Code, Refused, invalid
from p4reduce_switch.program import Entry, Table


def check_modify(operation: int, what: str) -> None:
    """Cells are there from the start: INVALID_ARGUMENT for inserts and deletes."""
    if operation != p4r.Update.MODIFY:
        invalid(f"a {what} can only be modified")


def indices(request: Any, name: str, size: int) -> Sequence[int]:
    """Return which cells of an array of `size` a request names: one, or all when it names none."""
    if not request.HasField("index"):
        return range(size)
    index: int = request.index.index
    if index < 0:
        invalid("an index is not negative")
    if index >= size:
        raise Refused(Code.OUT_OF_RANGE, f"{name} has {size} cells, no {index}")
    return [index]


class DirectCells:
    """The direct counters of all tables that have some, or the direct meters; `what` is their name in errors."""

    def __init__(self, what: str, has: Callable[[Table], bool]) -> None:
        self._what = what
        self._has = has

    def entry(self, pipeline: Pipeline, request: Any) -> tuple[BoundTable, Entry]:
        """Return the one entry that a request's table entry names; NOT_FOUND when there is none."""
        bound = self._table(pipeline, request)
        return bound, self._entry(bound, request)

    def entries(self, pipeline: Pipeline, query: Any) -> list[tuple[BoundTable, Entry]]:
        """Return the entry that a query's table entry names, or all of a table, or those of all tables."""
        if not query.table_id:
            tables = [bound for bound in pipeline.tables.values() if self._has(bound.table)]
            return [(bound, entry) for bound in tables for entry in bound.table.entries()]
        bound = self._table(pipeline, query)
        if query.match or query.is_default_action:
            return [(bound, self._entry(bound, query))]
        return [
            (bound, entry) for entry in bound.table.entries() if not query.priority or entry.priority == query.priority
        ]

    def _table(self, pipeline: Pipeline, request: Any) -> BoundTable:
        bound = pipeline.table(request.table_id)
        if not self._has(bound.table):
            invalid(f"table {bound.info.name} has no {self._what}")
        return bound

    def _entry(self, bound: BoundTable, request: Any) -> Entry:
        if request.is_default_action:
            raise Refused(Code.UNIMPLEMENTED, f"default entries have no {self._what} on this switch")
        return bound.existing(bound.identity_of(request))

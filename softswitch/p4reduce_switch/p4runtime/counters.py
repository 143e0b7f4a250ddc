"""Indirect and direct counters."""

from __future__ import annotations

from typing import Any

from p4reduce_contracts.p4runtime import messages
from p4reduce_contracts.p4runtime.schema import CounterInfo
from p4reduce_switch.p4runtime.pipeline import BoundTable, Pipeline
from p4reduce_switch.p4runtime.status import Code, Refused, invalid
from p4reduce_switch.p4runtime.tables import existing, identity_of, put_identity
from p4reduce_switch.program import CounterState, Entry

MODIFY = messages.Update.MODIFY


def write(pipeline: Pipeline, operation: int, request: Any) -> None:
    """Sets one cell of an indirect counter, or all when the index is left out."""
    info, counter = _find(pipeline, request.counter_id)
    if operation != MODIFY:
        invalid("a counter can only be modified")
    _check_index(info, request)
    if not request.HasField("data"):
        return
    cells = [request.index.index] if request.HasField("index") else range(counter.size)
    for index in cells:
        counter.write(index, request.data.packet_count, request.data.byte_count)


def read(pipeline: Pipeline, query: Any) -> list[Any]:
    """One cell, all cells of a counter, or all counters."""
    if not query.counter_id:
        return [cell for info, counter in pipeline.counters.values() for cell in _cells(info, counter)]
    info, counter = _find(pipeline, query.counter_id)
    _check_index(info, query)
    if query.HasField("index"):
        return [_cell(info, counter, query.index.index)]
    return _cells(info, counter)


def _find(pipeline: Pipeline, id: int) -> tuple[CounterInfo, CounterState]:
    if id not in pipeline.counters:
        invalid(f"the program has no counter with id {id}")
    return pipeline.counters[id]


def _check_index(info: CounterInfo, request: Any) -> None:
    if not request.HasField("index"):
        return
    if request.index.index < 0:
        invalid("a counter index is not negative")
    if request.index.index >= info.size:
        raise Refused(Code.OUT_OF_RANGE, f"counter {info.name} has {info.size} cells, no {request.index.index}")


def _cells(info: CounterInfo, counter: CounterState) -> list[Any]:
    return [_cell(info, counter, index) for index in range(info.size)]


def _cell(info: CounterInfo, counter: CounterState, index: int) -> Any:
    entity = messages.Entity()
    entity.counter_entry.counter_id = info.id
    entity.counter_entry.index.index = index
    packets, octets = counter.read(index)
    if info.packets:
        entity.counter_entry.data.packet_count = packets
    if info.bytes:
        entity.counter_entry.data.byte_count = octets
    return entity


def write_direct(pipeline: Pipeline, operation: int, request: Any) -> None:
    """Sets the direct counter of one entry."""
    bound = _direct(pipeline, request.table_entry.table_id)
    if operation != MODIFY:
        invalid("a direct counter can only be modified")
    entry = _entry(bound, request.table_entry)
    if request.HasField("data"):
        bound.table.write_counter(entry.match, entry.priority, request.data.packet_count, request.data.byte_count)


def read_direct(pipeline: Pipeline, query: Any) -> list[Any]:
    """The direct counter of one entry, of all entries of a table, or of all tables that have one."""
    request = query.table_entry
    if not request.table_id:
        tables = [bound for bound in pipeline.tables.values() if bound.table.has_direct_counter]
        return [_direct_entity(bound, entry) for bound in tables for entry in bound.table.entries()]
    bound = _direct(pipeline, request.table_id)
    if request.match or request.is_default_action:
        return [_direct_entity(bound, _entry(bound, request))]
    return [
        _direct_entity(bound, entry)
        for entry in bound.table.entries()
        if not request.priority or entry.priority == request.priority
    ]


def _direct(pipeline: Pipeline, table_id: int) -> BoundTable:
    bound = pipeline.table(table_id)
    if not bound.table.has_direct_counter:
        invalid(f"table {bound.info.name} has no direct counter")
    return bound


def _entry(bound: BoundTable, request: Any) -> Entry:
    if request.is_default_action:
        raise Refused(Code.UNIMPLEMENTED, "default entries have no direct counter on this switch")
    return existing(bound, identity_of(bound, request))


def _direct_entity(bound: BoundTable, entry: Entry) -> Any:
    entity = messages.Entity()
    out = entity.direct_counter_entry
    put_identity(bound, entry, out.table_entry)
    out.data.packet_count, out.data.byte_count = entry.packets, entry.bytes
    return entity

"""Indirect and direct counters."""

from __future__ import annotations

from typing import Any

from p4reduce_contracts.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_contracts.p4runtime.schema import CounterInfo
from p4reduce_switch.p4runtime.cells import DirectCells, check_modify, indices
from p4reduce_switch.p4runtime.pipeline import Pipeline
from p4reduce_switch.p4runtime.status import invalid
from p4reduce_switch.program import Counter

_DIRECT = DirectCells("direct counter", lambda table: table.has_direct_counter)


def write(pipeline: Pipeline, operation: int, request: Any) -> None:
    """Set one cell of an indirect counter, or all when the index is left out."""
    info, counter = _find(pipeline, request.counter_id)
    check_modify(operation, "counter")
    named = indices(request, f"counter {info.name}", counter.size)
    if request.HasField("data"):
        for index in named:
            counter.write(index, request.data.packet_count, request.data.byte_count)


def read(pipeline: Pipeline, query: Any) -> list[Any]:
    """One cell, all cells of a counter, or all counters."""
    wanted = [_find(pipeline, query.counter_id)] if query.counter_id else pipeline.counters.values()
    return [
        _entity(info, counter, index)
        for info, counter in wanted
        for index in indices(query, f"counter {info.name}", counter.size)
    ]


def _find(pipeline: Pipeline, id: int) -> tuple[CounterInfo, Counter]:
    if id not in pipeline.counters:
        invalid(f"the program has no counter with id {id}")
    return pipeline.counters[id]


def _entity(info: CounterInfo, counter: Counter, index: int) -> Any:
    entity = p4r.Entity()
    entity.counter_entry.counter_id = info.id
    entity.counter_entry.index.index = index
    packets, octets = counter.read(index)
    if info.packets:
        entity.counter_entry.data.packet_count = packets
    if info.bytes:
        entity.counter_entry.data.byte_count = octets
    return entity


def write_direct(pipeline: Pipeline, operation: int, request: Any) -> None:
    """Set the direct counter of one entry."""
    check_modify(operation, "direct counter")
    bound, entry = _DIRECT.entry(pipeline, request.table_entry)
    if request.HasField("data"):
        bound.table.write_counter(entry.match, entry.priority, request.data.packet_count, request.data.byte_count)


def read_direct(pipeline: Pipeline, query: Any) -> list[Any]:
    """The direct counter of one entry, of all entries of a table, or of all tables that have one."""
    found = []
    for bound, entry in _DIRECT.entries(pipeline, query.table_entry):
        entity = p4r.Entity()
        bound.put_identity(entry, entity.direct_counter_entry.table_entry)
        data = entity.direct_counter_entry.data
        data.packet_count, data.byte_count = entry.packets, entry.bytes
        found.append(entity)
    return found

"""Indirect and direct meters: their rates. They do not count by colour."""

from __future__ import annotations

from typing import Any

from p4reduce_contracts.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_contracts.p4runtime.schema import MeterInfo
from p4reduce_switch.p4runtime.cells import DirectCells, check_modify, indices
from p4reduce_switch.p4runtime.pipeline import Pipeline
from p4reduce_switch.p4runtime.status import Code, Refused, invalid
from p4reduce_switch.program import Meter, MeterConfig

_DIRECT = DirectCells("direct meter", lambda table: table.has_direct_meter)


def write(pipeline: Pipeline, operation: int, request: Any) -> None:
    """Set the rates of one cell of an indirect meter, or of all when the index is left out."""
    info, meter = _find(pipeline, request.meter_id)
    check_modify(operation, "meter")
    check_no_counts(request, "counter_data")
    named = indices(request, f"meter {info.name}", meter.size)
    config = _config_in(request)
    for index in named:
        meter.configure(index, config)


def read(pipeline: Pipeline, query: Any) -> list[Any]:
    """The rates of one cell, of all cells of a meter, or of all meters."""
    check_no_counts(query, "counter_data")
    wanted = [_find(pipeline, query.meter_id)] if query.meter_id else pipeline.meters.values()
    found = []
    for info, meter in wanted:
        for index in indices(query, f"meter {info.name}", meter.size):
            entity = p4r.Entity()
            entity.meter_entry.meter_id = info.id
            entity.meter_entry.index.index = index
            put_config(meter.read(index), entity.meter_entry.config)
            found.append(entity)
    return found


def write_direct(pipeline: Pipeline, operation: int, request: Any) -> None:
    """Set the rates of the direct meter of one entry."""
    check_modify(operation, "direct meter")
    check_no_counts(request, "counter_data")
    bound, entry = _DIRECT.entry(pipeline, request.table_entry)
    bound.table.configure_meter(entry.match, entry.priority, _config_in(request))


def read_direct(pipeline: Pipeline, query: Any) -> list[Any]:
    """The rates of the direct meter of one entry, of all entries of a table, or of all tables that have one."""
    check_no_counts(query, "counter_data")
    found = []
    for bound, entry in _DIRECT.entries(pipeline, query.table_entry):
        entity = p4r.Entity()
        bound.put_identity(entry, entity.direct_meter_entry.table_entry)
        put_config(bound.table.read_meter(entry.match, entry.priority), entity.direct_meter_entry.config)
        found.append(entity)
    return found


def config_of(request: Any) -> MeterConfig:
    """The rates in a request's MeterConfig; INVALID_ARGUMENT when no two-rate marker can have them."""
    if min(request.cir, request.cburst, request.pir, request.pburst) < 0:
        invalid("the rates and bursts of a meter are not negative")
    if request.eburst:
        invalid("a meter of two rates has no excess burst (eburst)")
    if request.pir < request.cir:
        invalid(f"the peak rate {request.pir} of a meter is below its committed rate {request.cir}")
    return MeterConfig(request.cir, request.cburst, request.pir, request.pburst)


def put_config(config: MeterConfig | None, out: Any) -> None:
    """Write rates into an answer; those of a meter that has none stay unset."""
    if config is not None:
        out.SetInParent()
        out.cir, out.cburst, out.pir, out.pburst = config.cir, config.cburst, config.pir, config.pburst


def check_no_counts(request: Any, field: str) -> None:
    """UNIMPLEMENTED when a request wants the counts by colour that targets may offer with a meter."""
    if request.HasField(field):
        raise Refused(Code.UNIMPLEMENTED, "the meters of this switch do not count by colour")


def _config_in(request: Any) -> MeterConfig | None:
    return config_of(request.config) if request.HasField("config") else None


def _find(pipeline: Pipeline, id: int) -> tuple[MeterInfo, Meter]:
    if id not in pipeline.meters:
        invalid(f"the program has no meter with id {id}")
    return pipeline.meters[id]

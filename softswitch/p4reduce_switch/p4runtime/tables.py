"""Table entries: P4Runtime's checks on one side, the program's tables on the other."""

from __future__ import annotations

from typing import Any

from p4reduce_contracts.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_switch.p4runtime import meters
from p4reduce_switch.p4runtime.action_profiles import refusals
from p4reduce_switch.p4runtime.bound_table import BoundTable, Identity
from p4reduce_switch.p4runtime.idle import IdleTimeouts
from p4reduce_switch.p4runtime.pipeline import Pipeline
from p4reduce_switch.p4runtime.status import Code, Refused, invalid
from p4reduce_switch.program import Entry, EntryExists, EntryMissing, MeterConfig, TableFull

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE


def write(pipeline: Pipeline, idle: IdleTimeouts, operation: int, entry: Any) -> None:
    """Insert, modify or delete an entry, or set the default entry."""
    bound = pipeline.table(entry.table_id)
    if operation != DELETE:
        _check_unwritable(entry)
        _check_timeout(bound, entry)
    if entry.is_default_action:
        _write_default(bound, operation, entry)
        return
    identity = bound.identity_of(entry)
    if bound.info.const:
        _write_const(bound, operation, entry, identity)
    elif operation == INSERT:
        _insert(bound, entry, identity)
    elif operation == MODIFY:
        _modify(bound, entry, identity)
    else:
        bound.existing(identity)
        bound.table.delete(*identity)
        bound.metadata.pop(identity, None)
        idle.forget(bound, identity)
        return
    idle.set(bound, identity, entry.idle_timeout_ns)


def _check_timeout(bound: BoundTable, entry: Any) -> None:
    """Refuse a timeout that the table or the entry cannot have; clients compare the texts, which are PI's."""
    if entry.idle_timeout_ns < 0:
        invalid("an idle timeout is not negative")
    if entry.idle_timeout_ns and entry.is_default_action:
        invalid("default entries have no idle timeouts")
    if entry.idle_timeout_ns and not _has_idle_timeout(bound):
        invalid("idle_timeout_ns must be set to 0 for tables which do not support idle timeout")


def _has_idle_timeout(bound: BoundTable) -> bool:
    return bound.info.has_idle_timeout and bound.table.supports_timeout


def _check_unwritable(entry: Any) -> None:
    if entry.HasField("time_since_last_hit"):
        invalid("has_time_since_last_hit must not be set in WriteRequest")
    if entry.is_const:
        invalid("is_const must not be set in WriteRequest")
    meters.check_no_counts(entry, "meter_counter_data")


def _insert(bound: BoundTable, entry: Any, identity: Identity) -> None:
    if not bound.keys:
        invalid(f"table {bound.info.name} has no key, so it takes no entries")
    if not entry.HasField("action"):
        invalid("an insert needs an action")
    rates = _rates(bound, entry)
    try:
        if bound.profile is None:
            bound.table.insert(*identity, *bound.action_of(entry))
        else:
            target = bound.profile.target_of(entry.action)
            with refusals(missing=Code.INVALID_ARGUMENT):
                bound.table.insert_reference(*identity, target)
    except EntryExists:
        raise Refused(Code.ALREADY_EXISTS, f"table {bound.info.name} already has this entry; use MODIFY") from None
    except TableFull as error:
        raise Refused(Code.RESOURCE_EXHAUSTED, str(error)) from error
    _set_resources(bound, entry, identity, rates)
    _remember(bound, identity, entry)


def _modify(bound: BoundTable, entry: Any, identity: Identity) -> None:
    bound.existing(identity)
    rates = _rates(bound, entry)
    if entry.HasField("action") and bound.profile is None:
        bound.table.modify(*identity, *bound.action_of(entry))
    elif entry.HasField("action") and bound.profile is not None:
        target = bound.profile.target_of(entry.action)
        with refusals(missing=Code.INVALID_ARGUMENT):
            bound.table.modify_reference(*identity, target)
    _set_resources(bound, entry, identity, rates)
    _remember(bound, identity, entry)


def _write_const(bound: BoundTable, operation: int, entry: Any, identity: Identity) -> None:
    """Of a const table only the direct counters and meters can be written."""
    if operation != MODIFY or entry.HasField("action"):
        raise Refused(Code.PERMISSION_DENIED, f"the entries of table {bound.info.name} are const")
    rates = _rates(bound, entry)
    bound.existing(identity)
    _set_resources(bound, entry, identity, rates)


def _write_default(bound: BoundTable, operation: int, entry: Any) -> None:
    if operation != MODIFY:
        invalid("a default entry can only be modified")
    _check_default(entry)
    if bound.profile is not None:
        invalid(f"the default entry of table {bound.info.name}, which has an action profile, cannot be set")
    for resource, field in (("counter", "counter_data"), ("meter", "meter_config")):
        if entry.HasField(field):
            raise Refused(Code.UNIMPLEMENTED, f"default entries have no direct {resource} on this switch")
    if bound.table.default_is_const or bound.info.const_default:
        raise Refused(Code.PERMISSION_DENIED, f"the default entry of table {bound.info.name} is const")
    if entry.HasField("action"):
        bound.table.set_default(*bound.action_of(entry, default=True))
        _remember(bound, None, entry)
    else:
        bound.table.reset_default()
        bound.metadata.pop(None, None)


def _check_default(entry: Any) -> None:
    if entry.match or entry.priority:
        invalid("a default entry has neither match nor priority")


def _rates(bound: BoundTable, entry: Any) -> MeterConfig | None:
    """Check a request's direct resources against the table's; return the rates for the direct meter, if any."""
    if entry.HasField("counter_data") and not bound.table.has_direct_counter:
        invalid(f"table {bound.info.name} has no direct counter")
    if not entry.HasField("meter_config"):
        return None
    if not bound.table.has_direct_meter:
        invalid(f"table {bound.info.name} has no direct meter")
    return meters.config_of(entry.meter_config)


def _set_resources(bound: BoundTable, entry: Any, identity: Identity, rates: MeterConfig | None) -> None:
    """Write the direct counter if the request has one, and the direct meter, whose rates are gone if it has none."""
    if entry.HasField("counter_data"):
        bound.table.write_counter(*identity, entry.counter_data.packet_count, entry.counter_data.byte_count)
    if bound.table.has_direct_meter:
        bound.table.configure_meter(*identity, rates)


def _remember(bound: BoundTable, identity: Identity | None, entry: Any) -> None:
    opaque = (entry.controller_metadata, entry.metadata)
    if any(opaque):
        bound.metadata[identity] = opaque
    else:
        bound.metadata.pop(identity, None)


def read(pipeline: Pipeline, idle: IdleTimeouts, query: Any) -> list[Any]:
    """Entities for a table entry of a ReadRequest: one entry, those of a table, or all (spec, "Wildcard Reads")."""
    meters.check_no_counts(query, "meter_counter_data")
    if not query.table_id:
        return [entity for bound in pipeline.tables.values() for entity in _read_table(bound, idle, query)]
    bound = pipeline.table(query.table_id)
    _check_time_since_last_hit(bound, query)
    if query.is_default_action:
        _check_default(query)
        return [_default_entity(bound)]
    if query.match:
        identity = bound.identity_of(query)
        try:
            found = bound.table.entry(*identity)
        except EntryMissing:
            return []
        return [_entity(bound, idle, found, query)]
    return _read_table(bound, idle, query)


def _read_table(bound: BoundTable, idle: IdleTimeouts, query: Any) -> list[Any]:
    """All entries that pass the filters. Default entries are read on their own, or with all tables."""
    _check_time_since_last_hit(bound, query)
    if query.is_default_action:
        return [_default_entity(bound)]
    wanted = [_entity(bound, idle, entry, query) for entry in bound.table.entries()]
    for field in ("priority", "controller_metadata", "metadata"):
        if getattr(query, field):
            wanted = [e for e in wanted if getattr(e.table_entry, field) == getattr(query, field)]
    if query.action.WhichOneof("type") == "action":
        id = query.action.action.action_id
        wanted = [e for e in wanted if e.table_entry.action.action.action_id == id]
    elif query.HasField("action"):
        wanted = [e for e in wanted if e.table_entry.action == query.action]
    return wanted


def _check_time_since_last_hit(bound: BoundTable, query: Any) -> None:
    if query.HasField("time_since_last_hit") and (query.is_default_action or not _has_idle_timeout(bound)):
        invalid(f"table {bound.info.name} does not tell how long an entry is idle, and default entries never do")


def _entity(bound: BoundTable, idle: IdleTimeouts, entry: Entry, query: Any) -> Any:
    """An entry as P4Runtime shows it, with the direct resources that the query asks for."""
    entity = p4r.Entity()
    out = entity.table_entry
    bound.put_identity(entry, out)
    bound.put_entry_action(entry, out)
    out.controller_metadata, out.metadata = bound.metadata.get((entry.match, entry.priority), (0, b""))
    if query.HasField("counter_data") and bound.table.has_direct_counter:
        out.counter_data.packet_count, out.counter_data.byte_count = entry.packets, entry.bytes
    if query.HasField("meter_config") and bound.table.has_direct_meter:
        meters.put_config(bound.table.read_meter(entry.match, entry.priority), out.meter_config)
    out.idle_timeout_ns = idle.timeout_ns(bound, entry)
    if query.HasField("time_since_last_hit"):
        out.time_since_last_hit.elapsed_ns = idle.since_last_hit_ns(entry)
    out.is_const = entry.const
    return entity


def _default_entity(bound: BoundTable) -> Any:
    entity = p4r.Entity()
    out = entity.table_entry
    out.table_id = bound.info.id
    out.is_default_action = True
    if bound.table.default_action is not None:
        bound.put_action(*bound.table.default_action, out)
    out.controller_metadata, out.metadata = bound.metadata.get(None, (0, b""))
    return entity

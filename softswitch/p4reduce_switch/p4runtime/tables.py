"""Table entries: P4Runtime's checks on one side, the executor's tables on the other."""

from __future__ import annotations

from typing import Any

from p4reduce_contracts.p4runtime import messages
from p4reduce_contracts.p4runtime.schema import ActionInfo, FieldInfo
from p4reduce_switch.p4runtime.bits import data_of, value_of
from p4reduce_switch.p4runtime.pipeline import BoundTable, Identity, Pipeline
from p4reduce_switch.p4runtime.status import Code, Refused, invalid
from p4reduce_switch.program import Entry, EntryExists, EntryMissing, TableFull

INSERT, MODIFY, DELETE = messages.Update.INSERT, messages.Update.MODIFY, messages.Update.DELETE


def write(pipeline: Pipeline, operation: int, entry: Any) -> None:
    """Inserts, modifies or deletes an entry, or sets the default entry."""
    bound = pipeline.table(entry.table_id)
    if operation != DELETE:
        _check_unsupported(entry)
    if entry.is_default_action:
        _write_default(pipeline, bound, operation, entry)
        return
    identity = identity_of(bound, entry)
    if bound.info.const or bound.table.const:
        _write_const(bound, operation, entry, identity)
    elif operation == INSERT:
        _insert(pipeline, bound, entry, identity)
    elif operation == MODIFY:
        _modify(pipeline, bound, entry, identity)
    else:
        existing(bound, identity)
        bound.table.delete(*identity)
        bound.metadata.pop(identity, None)


def _check_unsupported(entry: Any) -> None:
    if entry.HasField("time_since_last_hit") or entry.is_const:
        invalid("time_since_last_hit and is_const must not be set in a write")
    if entry.idle_timeout_ns:
        invalid("this switch has no idle timeouts")
    if entry.HasField("meter_config") or entry.HasField("meter_counter_data"):
        raise Refused(Code.UNIMPLEMENTED, "direct meters are not supported through P4Runtime")


def _insert(pipeline: Pipeline, bound: BoundTable, entry: Any, identity: Identity) -> None:
    if not bound.keys:
        invalid(f"table {bound.info.name} has no key, so it takes no entries")
    if not entry.HasField("action"):
        invalid("an insert needs an action")
    action, params = _action(pipeline, bound, entry, default=False)
    _check_counter(bound, entry)
    try:
        bound.table.insert(*identity, action.name, params)
    except EntryExists:
        raise Refused(Code.ALREADY_EXISTS, f"table {bound.info.name} already has this entry; use MODIFY") from None
    except TableFull as error:
        raise Refused(Code.RESOURCE_EXHAUSTED, str(error)) from error
    _note(bound, entry, identity)


def _modify(pipeline: Pipeline, bound: BoundTable, entry: Any, identity: Identity) -> None:
    existing(bound, identity)
    _check_counter(bound, entry)
    if entry.HasField("action"):
        action, params = _action(pipeline, bound, entry, default=False)
        bound.table.modify(*identity, action.name, params)
    _note(bound, entry, identity)


def _write_const(bound: BoundTable, operation: int, entry: Any, identity: Identity) -> None:
    """Of a const table only the direct counters can be written."""
    if operation != MODIFY or entry.HasField("action"):
        raise Refused(Code.PERMISSION_DENIED, f"the entries of table {bound.info.name} are const")
    _check_counter(bound, entry)
    existing(bound, identity)
    _set_counter(bound, identity, entry)


def _write_default(pipeline: Pipeline, bound: BoundTable, operation: int, entry: Any) -> None:
    if operation != MODIFY:
        invalid("a default entry can only be modified")
    _check_default(entry)
    if entry.HasField("counter_data"):
        raise Refused(Code.UNIMPLEMENTED, "default entries have no direct counter on this switch")
    if bound.table.default_is_const or bound.info.const_default:
        raise Refused(Code.PERMISSION_DENIED, f"the default entry of table {bound.info.name} is const")
    if entry.HasField("action"):
        action, params = _action(pipeline, bound, entry, default=True)
        bound.table.set_default(action.name, params)
        _remember(bound, None, entry)
    else:
        bound.table.reset_default()
        bound.metadata.pop(None, None)


def _check_default(entry: Any) -> None:
    if entry.match or entry.priority:
        invalid("a default entry has neither match nor priority")


def _check_counter(bound: BoundTable, entry: Any) -> None:
    if entry.HasField("counter_data") and not bound.table.has_direct_counter:
        invalid(f"table {bound.info.name} has no direct counter")


def _set_counter(bound: BoundTable, identity: Identity, entry: Any) -> None:
    if entry.HasField("counter_data"):
        bound.table.write_counter(*identity, entry.counter_data.packet_count, entry.counter_data.byte_count)


def _note(bound: BoundTable, entry: Any, identity: Identity) -> None:
    """After a successful write: counter and opaque metadata."""
    _set_counter(bound, identity, entry)
    _remember(bound, identity, entry)


def _remember(bound: BoundTable, identity: Identity | None, entry: Any) -> None:
    opaque = (entry.controller_metadata, entry.metadata)
    if any(opaque):
        bound.metadata[identity] = opaque
    else:
        bound.metadata.pop(identity, None)


def existing(bound: BoundTable, identity: Identity) -> Entry:
    """The executor's entry; NOT_FOUND when there is none."""
    try:
        return bound.table.entry(*identity)
    except EntryMissing:
        raise Refused(Code.NOT_FOUND, f"table {bound.info.name} has no such entry") from None


def identity_of(bound: BoundTable, entry: Any) -> Identity:
    """Match and priority of a request in the executor's form, after all checks of the spec ("Match Format")."""
    given = {field.field_id: field for field in entry.match}
    if len(given) != len(entry.match):
        invalid("a key is given twice")
    unknown = set(given) - bound.key_ids
    if unknown:
        invalid(f"table {bound.info.name} has no key with id {min(unknown)}")
    if entry.priority < 0 or bound.info.needs_priority != bool(entry.priority):
        needs = "needs a priority above 0" if bound.info.needs_priority else "takes no priority"
        invalid(f"table {bound.info.name} {needs}")
    match = bound.to_executor(_match_value(bound, key, given.get(key.id)) for key in bound.keys)
    return match, entry.priority


def _match_value(bound: BoundTable, key: FieldInfo, field: Any) -> Any:
    full = (1 << key.bitwidth) - 1
    if field is None:
        if key.kind == "exact":
            invalid(f"table {bound.info.name}: the exact key {key.name} is missing")
        return {"lpm": (0, 0), "ternary": (0, 0), "range": (0, full), "optional": None}[key.kind]
    if field.WhichOneof("field_match_type") != key.kind:
        invalid(f"table {bound.info.name}: key {key.name} is {key.kind}")
    if key.kind in ("exact", "optional"):
        return value_of(getattr(field, key.kind).value, key)
    if key.kind == "lpm":
        length, value = field.lpm.prefix_len, value_of(field.lpm.value, key)
        if not 0 < length <= key.bitwidth:
            invalid(
                f"{key.name}: prefix length {length} is not in 1..{key.bitwidth} (leave out a key that matches all)"
            )
        if value & full >> length:
            invalid(f"{key.name}: bits outside the prefix are set")
        return value, length
    if key.kind == "ternary":
        value, mask = value_of(field.ternary.value, key), value_of(field.ternary.mask, key)
        if not mask:
            invalid(f"{key.name}: the mask is 0 (leave out a key that matches all)")
        if value & ~mask:
            invalid(f"{key.name}: bits outside the mask are set")
        return value, mask
    low, high = value_of(field.range.low, key), value_of(field.range.high, key)
    if low > high or (low, high) == (0, full):
        invalid(f"{key.name}: the range {low}..{high} is empty or matches all (then leave out the key)")
    return low, high


def _action(pipeline: Pipeline, bound: BoundTable, entry: Any, *, default: bool) -> tuple[ActionInfo, tuple[int, ...]]:
    """The action of a request with its parameters in order, after the checks of the spec ("Action Specification")."""
    if entry.action.WhichOneof("type") != "action":
        invalid(f"table {bound.info.name} takes a direct action, no action profile")
    request = entry.action.action
    if request.action_id not in bound.info.action_ids:
        invalid(f"table {bound.info.name} has no action with id {request.action_id}")
    barred = bound.info.entry_only if default else bound.info.default_only
    action = pipeline.schema.actions.by_id[request.action_id]
    if action.id in barred:
        where = "as default action" if default else "in entries"
        raise Refused(Code.PERMISSION_DENIED, f"table {bound.info.name} does not allow {action.name} {where}")
    given = {param.param_id: param.value for param in request.params}
    if len(given) != len(request.params) or set(given) != {param.id for param in action.params}:
        wanted = [f"{param.id} ({param.name})" for param in action.params]
        invalid(f"action {action.name} takes exactly the parameters {', '.join(wanted) or 'none'}")
    return action, tuple(value_of(given[param.id], param) for param in action.params)


def read(pipeline: Pipeline, query: Any) -> list[Any]:
    """Entities for a table entry of a ReadRequest: one entry, those of a table, or all (spec, "Wildcard Reads")."""
    if query.HasField("time_since_last_hit"):
        invalid("this switch has no idle timeouts")
    if query.HasField("meter_config") or query.HasField("meter_counter_data"):
        raise Refused(Code.UNIMPLEMENTED, "direct meters are not supported through P4Runtime")
    if not query.table_id:
        tables = pipeline.tables.values()
        return [entity for bound in tables for entity in _read_table(pipeline, bound, query)]
    bound = pipeline.table(query.table_id)
    if query.is_default_action:
        _check_default(query)
        return [_default_entity(pipeline, bound)]
    if query.match:
        identity = identity_of(bound, query)
        try:
            found = bound.table.entry(*identity)
        except EntryMissing:
            return []
        return [to_entity(pipeline, bound, found, with_counter=query.HasField("counter_data"))]
    return _read_table(pipeline, bound, query)


def _read_table(pipeline: Pipeline, bound: BoundTable, query: Any) -> list[Any]:
    """All entries that pass the filters. Default entries are read on their own, or with all tables."""
    if query.is_default_action:
        return [_default_entity(pipeline, bound)]
    wanted = [to_entity(pipeline, bound, e, with_counter=query.HasField("counter_data")) for e in bound.table.entries()]
    for field in ("priority", "controller_metadata", "metadata"):
        if getattr(query, field):
            wanted = [e for e in wanted if getattr(e.table_entry, field) == getattr(query, field)]
    if query.HasField("action"):
        id = query.action.action.action_id
        wanted = [e for e in wanted if e.table_entry.action.action.action_id == id]
    return wanted


def to_entity(pipeline: Pipeline, bound: BoundTable, entry: Entry, *, with_counter: bool) -> Any:
    """An entry as P4Runtime shows it."""
    entity = messages.Entity()
    out = entity.table_entry
    put_identity(bound, entry, out)
    _put_action(pipeline, bound, entry.action, entry.params, out)
    out.controller_metadata, out.metadata = bound.metadata.get((entry.match, entry.priority), (0, b""))
    if with_counter and bound.table.has_direct_counter:
        out.counter_data.packet_count, out.counter_data.byte_count = entry.packets, entry.bytes
    out.is_const = entry.const
    return entity


def put_identity(bound: BoundTable, entry: Entry, out: Any) -> None:
    """Table id, match and priority; keys that match everything are left out."""
    out.table_id = bound.info.id
    out.priority = entry.priority
    for key, value in bound.from_executor(entry.match):
        if key.kind == "exact" or (key.kind == "optional" and value is not None):
            getattr(out.match.add(field_id=key.id), key.kind).value = data_of(value, key)
        elif key.kind == "lpm" and value[1]:
            out.match.add(field_id=key.id).lpm.value = data_of(value[0], key)
            out.match[-1].lpm.prefix_len = value[1]
        elif key.kind == "ternary" and value[1]:
            out.match.add(field_id=key.id).ternary.value = data_of(value[0], key)
            out.match[-1].ternary.mask = data_of(value[1], key)
        elif key.kind == "range" and value != (0, (1 << key.bitwidth) - 1):
            out.match.add(field_id=key.id).range.low = data_of(value[0], key)
            out.match[-1].range.high = data_of(value[1], key)


def _default_entity(pipeline: Pipeline, bound: BoundTable) -> Any:
    entity = messages.Entity()
    out = entity.table_entry
    out.table_id = bound.info.id
    out.is_default_action = True
    if bound.table.default_action is not None:
        _put_action(pipeline, bound, *bound.table.default_action, out)
    out.controller_metadata, out.metadata = bound.metadata.get(None, (0, b""))
    return entity


def _put_action(pipeline: Pipeline, bound: BoundTable, name: str, params: tuple[int, ...], out: Any) -> None:
    if name not in pipeline.schema.actions:  # a default action that P4Info does not list
        return
    action = pipeline.schema.actions[name]
    out.action.action.action_id = action.id
    for param, value in zip(action.params, params, strict=True):
        out.action.action.params.add(param_id=param.id, value=data_of(value, param))

"""Entries by name <-> P4Runtime entities by id."""

from __future__ import annotations

from typing import Any

from p4reduce_contracts.p4runtime import bytestrings, messages, quirks
from p4reduce_contracts.p4runtime.entries import (
    CloneSession,
    CounterData,
    CounterEntry,
    DigestConfig,
    DirectCounterEntry,
    Entry,
    MatchValue,
    MulticastGroup,
    TableEntry,
)
from p4reduce_contracts.p4runtime.errors import SchemaError
from p4reduce_contracts.p4runtime.schema import FieldInfo, Schema, TableInfo, by_id


def encode(schema: Schema, entry: Entry) -> Any:
    """The P4Runtime Entity of an entry; SchemaError when a name or a value does not fit the program."""
    entity = messages.Entity()
    if isinstance(entry, TableEntry):
        _encode_table_entry(schema, entry, entity.table_entry)
    elif isinstance(entry, CounterEntry):
        entity.counter_entry.counter_id = schema.counters[entry.counter].id
        if entry.index is not None:
            entity.counter_entry.index.index = entry.index
        entity.counter_entry.data.packet_count = entry.packets
        entity.counter_entry.data.byte_count = entry.bytes
    elif isinstance(entry, DirectCounterEntry):
        _encode_table_entry(schema, entry.entry, entity.direct_counter_entry.table_entry)
        entity.direct_counter_entry.table_entry.ClearField("action")
        entity.direct_counter_entry.data.packet_count = entry.packets
        entity.direct_counter_entry.data.byte_count = entry.bytes
    elif isinstance(entry, MulticastGroup):
        group = entity.packet_replication_engine_entry.multicast_group_entry
        group.multicast_group_id = entry.group_id
        _encode_replicas(entry.replicas, group.replicas)
    elif isinstance(entry, CloneSession):
        session = entity.packet_replication_engine_entry.clone_session_entry
        session.session_id = entry.session_id
        session.class_of_service = entry.class_of_service
        session.packet_length_bytes = entry.packet_length_bytes
        _encode_replicas(entry.replicas, session.replicas)
    elif isinstance(entry, DigestConfig):
        entity.digest_entry.digest_id = schema.digests[entry.name].id
        entity.digest_entry.config.max_timeout_ns = entry.max_timeout_ns
        entity.digest_entry.config.max_list_size = entry.max_list_size
        entity.digest_entry.config.ack_timeout_ns = entry.ack_timeout_ns
    else:
        raise SchemaError(f"{type(entry).__name__} is not an entry of a switch")
    return entity


def decode(schema: Schema, entity: Any) -> Entry:
    """The entry an Entity stands for; SchemaError for kinds and ids the program does not have."""
    kind = entity.WhichOneof("entity")
    if kind == "table_entry":
        return _decode_table_entry(schema, entity.table_entry)
    if kind == "counter_entry":
        cell = entity.counter_entry
        counter = schema.counters.find(cell.counter_id)
        return CounterEntry(counter.name, cell.index.index, cell.data.packet_count, cell.data.byte_count)
    if kind == "direct_counter_entry":
        direct = entity.direct_counter_entry
        entry = _decode_table_entry(schema, direct.table_entry)
        return DirectCounterEntry(entry, direct.data.packet_count, direct.data.byte_count)
    if kind == "packet_replication_engine_entry":
        engine = entity.packet_replication_engine_entry
        if engine.WhichOneof("type") == "multicast_group_entry":
            group = engine.multicast_group_entry
            return MulticastGroup(group.multicast_group_id, _decode_replicas(group.replicas))
        if engine.WhichOneof("type") == "clone_session_entry":
            session = engine.clone_session_entry
            return CloneSession(
                session.session_id,
                _decode_replicas(session.replicas),
                session.packet_length_bytes,
                session.class_of_service,
            )
    if kind == "digest_entry":
        config = entity.digest_entry.config
        name = schema.digests.find(entity.digest_entry.digest_id).name
        return DigestConfig(name, config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns)
    raise SchemaError(f"an entity of kind {kind} is not supported by this client")


def _bytes(info: FieldInfo, value: int, where: str) -> bytes:
    try:
        return bytestrings.encode(value, info.bitwidth)
    except ValueError as error:
        raise SchemaError(f"{where}: {info.name}: {error}") from error


def _encode_table_entry(schema: Schema, entry: TableEntry, out: Any) -> None:
    table = schema.tables[entry.table]
    out.table_id = table.id
    out.priority = entry.priority
    out.is_default_action = entry.is_default
    keys = {key.name: key for key in table.keys}
    unknown = set(entry.match) - set(keys)
    if unknown:
        raise SchemaError(f"table {table.name} has no key {sorted(unknown)}; it has: {', '.join(keys)}")
    for name, key in keys.items():
        if name in entry.match:
            _encode_match(key, entry.match[name], table, out)
        elif key.kind == "exact" and not entry.is_default:
            raise SchemaError(f"table {table.name}: the exact key {name} is missing")
    if entry.action is not None:
        _encode_action(schema, table, entry, out.action.action)
    if entry.counter is not None:
        out.counter_data.packet_count = entry.counter.packets
        out.counter_data.byte_count = entry.counter.bytes


def _encode_match(key: FieldInfo, value: MatchValue, table: TableInfo, out: Any) -> None:
    """Adds one key to a table entry; a value that matches everything is left out, as the spec asks."""
    where = f"table {table.name}"
    if key.kind in ("exact", "optional"):
        if not isinstance(value, int):
            raise SchemaError(f"{where}: {key.name} is {key.kind} and takes one integer, not {value!r}")
        data = _bytes(key, value, where)
        getattr(out.match.add(field_id=key.id), key.kind).value = data
        return
    if isinstance(value, int) or len(value) != 2:
        raise SchemaError(f"{where}: {key.name} is {key.kind} and takes a pair of integers, not {value!r}")
    first, second = value
    if key.kind == "lpm":
        if not 0 <= second <= key.bitwidth:
            raise SchemaError(f"{where}: {key.name}: prefix length {second} is not in 0..{key.bitwidth}")
        host = (1 << key.bitwidth - second) - 1
        if second:
            out.match.add(field_id=key.id).lpm.prefix_len = second
            out.match[-1].lpm.value = _bytes(key, first & ~host, where)
    elif key.kind == "ternary":
        if second:
            out.match.add(field_id=key.id).ternary.mask = _bytes(key, second, where)
            out.match[-1].ternary.value = _bytes(key, first & second, where)
    elif (first, second) != (0, (1 << key.bitwidth) - 1):
        if first > second:
            raise SchemaError(f"{where}: {key.name}: the range {first}..{second} is empty")
        out.match.add(field_id=key.id).range.low = _bytes(key, first, where)
        out.match[-1].range.high = _bytes(key, second, where)


def _encode_action(schema: Schema, table: TableInfo, entry: TableEntry, out: Any) -> None:
    assert entry.action is not None
    action = schema.actions[entry.action]
    if action.id not in table.action_ids:
        names = ", ".join(schema.actions.find(id).name for id in table.action_ids)
        raise SchemaError(f"table {table.name} has no action {action.name}; it has: {names}")
    names_wanted = [param.name for param in action.params]
    if set(entry.params) != set(names_wanted):
        raise SchemaError(f"action {action.name} takes ({', '.join(names_wanted)}), not ({', '.join(entry.params)})")
    out.action_id = action.id
    for param in action.params:
        out.params.add(param_id=param.id, value=_bytes(param, entry.params[param.name], f"action {action.name}"))


def _decode_table_entry(schema: Schema, entry: Any) -> TableEntry:
    table = schema.tables.find(entry.table_id)
    keys = by_id(table.keys)
    match: dict[str, MatchValue] = {}
    for field in entry.match:
        if field.field_id not in keys:
            raise SchemaError(f"table {table.name} has no key with id {field.field_id}")
        match[keys[field.field_id].name] = _decode_match(field)
    action_name, params = None, {}
    if entry.HasField("action"):
        if entry.action.WhichOneof("type") != "action":
            raise SchemaError(f"table {table.name} uses an action profile; not supported by this client")
        action = schema.actions.find(entry.action.action.action_id)
        names = by_id(action.params)
        action_name = action.name
        params = {names[p.param_id].name: bytestrings.decode(p.value) for p in entry.action.action.params}
    counter = None
    if entry.HasField("counter_data"):
        counter = CounterData(entry.counter_data.packet_count, entry.counter_data.byte_count)
    return TableEntry(table.name, match, action_name, params, entry.priority, entry.is_default_action, counter)


def _decode_match(field: Any) -> MatchValue:
    kind = field.WhichOneof("field_match_type")
    if kind in ("exact", "optional"):
        return bytestrings.decode(getattr(field, kind).value)
    if kind == "lpm":
        return bytestrings.decode(field.lpm.value), int(field.lpm.prefix_len)
    if kind == "ternary":
        return bytestrings.decode(field.ternary.value), bytestrings.decode(field.ternary.mask)
    if kind == "range":
        return bytestrings.decode(field.range.low), bytestrings.decode(field.range.high)
    raise SchemaError(f"a match of kind {kind} is not supported by this client")


def _encode_replicas(replicas: tuple[tuple[int, int], ...], out: Any) -> None:
    for port, instance in replicas:
        quirks.set_replica_port(out.add(instance=instance), port)


def _decode_replicas(replicas: Any) -> tuple[tuple[int, int], ...]:
    """(port, instance) pairs, sorted: the spec gives replicas no order."""
    return tuple(sorted((quirks.replica_port(replica), replica.instance) for replica in replicas))


def decode_data(data: Any) -> tuple[int, ...]:
    """The values of one digest message: those of a struct or tuple, or a single bit string."""
    kind = data.WhichOneof("data")
    if kind in ("struct", "tuple"):
        return tuple(value for member in getattr(data, kind).members for value in decode_data(member))
    if kind == "bitstring":
        return (bytestrings.decode(data.bitstring),)
    if kind == "bool":
        return (int(data.bool),)
    raise SchemaError(f"a digest member of kind {kind} is not supported by this client")

"""Entries by name <-> P4Runtime entities by id."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

from p4reduce_runtime.p4.v1 import p4data_pb2 as p4d
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime import bytestrings, quirks
from p4reduce_runtime.p4runtime.entries import (
    CounterEntry,
    DigestConfig,
    Entry,
    MatchValue,
    MeterConfig,
    MeterEntry,
    MulticastGroup,
    TableEntry,
)
from p4reduce_runtime.p4runtime.errors import SchemaError
from p4reduce_runtime.p4runtime.schema import FieldInfo, Schema, TableInfo, by_id


@dataclass(frozen=True)
class _Kind:
    """The place of one kind of entry in an Entity: `path` names the fields that lead to its message."""

    path: tuple[str, ...]
    encode: Callable[[Schema, Any, Any], None]
    decode: Callable[[Schema, Any], Entry]


def encode(schema: Schema, entry: Entry | p4r.Entity) -> p4r.Entity:
    """Return the P4Runtime Entity of an entry; SchemaError when a name or a value does not fit the program.

    An Entity is returned as it is.
    """
    if isinstance(entry, p4r.Entity):
        return entry
    kind = _KINDS.get(type(entry))
    if kind is None:
        raise SchemaError(f"{type(entry).__name__} is not an entry of a switch")
    entity = p4r.Entity()
    kind.encode(schema, entry, reduce(getattr, kind.path, entity))
    return entity


def decode(schema: Schema, entity: p4r.Entity) -> Entry:
    """Return the entry an Entity stands for; SchemaError for kinds and ids the program does not have."""
    path, message = _message_of(entity)
    if path not in _BY_PATH:
        raise SchemaError(f"an entity of kind {'.'.join(path)} is not supported by this client")
    return _BY_PATH[path].decode(schema, message)


def _message_of(entity: p4r.Entity) -> tuple[tuple[str, ...], Any]:
    kind = entity.WhichOneof("entity")
    if kind is None:
        return (), entity
    message = getattr(entity, kind)
    if kind != _ENGINE:
        return (kind,), message
    inner = message.WhichOneof("type")
    return ((kind,), message) if inner is None else ((kind, inner), getattr(message, inner))


def _bytes(info: FieldInfo, value: int, where: str) -> bytes:
    if not info.bitwidth:
        raise SchemaError(f"{where}: P4Runtime translates the type of {info.name} to strings; not supported")
    try:
        return quirks.byte_string(value, info.bitwidth)
    except ValueError as error:
        raise SchemaError(f"{where}: {info.name}: {error}") from error


def _encode_table_entry(schema: Schema, entry: TableEntry, out: p4r.TableEntry) -> None:
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
            _encode_match(key, entry.match[name], f"table {table.name}", out)
        elif key.kind == "exact" and not entry.is_default:
            raise SchemaError(f"table {table.name}: the exact key {name} is missing")
    if entry.action is not None:
        _encode_action(schema, table, entry.action, entry.params, out.action.action)


def _encode_match(key: FieldInfo, value: MatchValue, where: str, out: p4r.TableEntry) -> None:
    """Adds one key to an entry's `match`; a value that matches everything is left out, as the spec requires."""
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


def _encode_action(schema: Schema, table: TableInfo, name: str, params: Mapping[str, int], out: p4r.Action) -> None:
    action = schema.actions[name]
    if action.id not in table.action_ids:
        names = ", ".join(schema.actions.find(id).name for id in sorted(table.action_ids))
        raise SchemaError(f"table {table.name} has no action {action.name}; it has: {names}")
    names_wanted = [param.name for param in action.params]
    if set(params) != set(names_wanted):
        raise SchemaError(f"action {action.name} takes ({', '.join(names_wanted)}), not ({', '.join(params)})")
    out.action_id = action.id
    for param in action.params:
        out.params.add(param_id=param.id, value=_bytes(param, params[param.name], f"action {action.name}"))


def _decode_action(schema: Schema, given: p4r.Action) -> tuple[str, dict[str, int]]:
    action = schema.actions.find(given.action_id)
    names = by_id(action.params)
    params = {}
    for param in given.params:
        if param.param_id not in names:
            raise SchemaError(f"action {action.name} has no parameter with id {param.param_id}")
        params[names[param.param_id].name] = bytestrings.decode(param.value)
    return action.name, params


def _decode_table_entry(schema: Schema, entry: p4r.TableEntry) -> TableEntry:
    table = schema.tables.find(entry.table_id)
    keys = by_id(table.keys)
    match: dict[str, MatchValue] = {}
    for field in entry.match:
        if field.field_id not in keys:
            raise SchemaError(f"table {table.name} has no key with id {field.field_id}")
        match[keys[field.field_id].name] = _decode_match(field)
    action_name: str | None = None
    params: dict[str, int] = {}
    kind = entry.action.WhichOneof("type")
    if kind == "action":
        action_name, params = _decode_action(schema, entry.action.action)
    elif kind is not None:
        raise SchemaError(f"table {table.name}: an entry with an {kind} is not supported by this client")
    return TableEntry(table.name, match, action_name, params, entry.priority, entry.is_default_action)


def _decode_match(field: p4r.FieldMatch) -> MatchValue:
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


def _encode_counter(schema: Schema, entry: CounterEntry, out: p4r.CounterEntry) -> None:
    out.counter_id = schema.counters[entry.counter].id
    if entry.index is not None:
        out.index.index = entry.index
    out.data.packet_count, out.data.byte_count = entry.packets, entry.bytes


def _decode_counter(schema: Schema, cell: p4r.CounterEntry) -> CounterEntry:
    counter = schema.counters.find(cell.counter_id)
    return CounterEntry(counter.name, cell.index.index, cell.data.packet_count, cell.data.byte_count)


def _encode_meter(schema: Schema, entry: MeterEntry, out: p4r.MeterEntry) -> None:
    out.meter_id = schema.meters[entry.meter].id
    if entry.index is not None:
        out.index.index = entry.index
    if entry.config is not None:
        out.config.SetInParent()
        for name, value in asdict(entry.config).items():
            try:
                setattr(out.config, name, value)
            except (TypeError, ValueError) as error:
                raise SchemaError(
                    f"{name} {value!r} of a meter is not a whole number of 64 bits with a sign"
                ) from error


def _decode_meter(schema: Schema, cell: p4r.MeterEntry) -> MeterEntry:
    found = cell.config
    config = MeterConfig(found.cir, found.cburst, found.pir, found.pburst) if cell.HasField("config") else None
    return MeterEntry(schema.meters.find(cell.meter_id).name, cell.index.index, config)


def _encode_group(schema: Schema, group: MulticastGroup, out: p4r.MulticastGroupEntry) -> None:
    out.multicast_group_id = group.group_id
    for port, instance in group.replicas:
        quirks.set_replica_port(out.replicas.add(instance=instance), port)


def _decode_group(schema: Schema, group: p4r.MulticastGroupEntry) -> MulticastGroup:
    """The replicas are sorted: the spec gives them no order."""
    replicas = ((quirks.replica_port(replica), replica.instance) for replica in group.replicas)
    return MulticastGroup(group.multicast_group_id, tuple(sorted(replicas)))


def _encode_digest(schema: Schema, digest: DigestConfig, out: p4r.DigestEntry) -> None:
    out.digest_id = schema.digests[digest.name].id
    out.config.max_timeout_ns = digest.max_timeout_ns
    out.config.max_list_size = digest.max_list_size
    out.config.ack_timeout_ns = digest.ack_timeout_ns


def _decode_digest(schema: Schema, digest: p4r.DigestEntry) -> DigestConfig:
    config = digest.config
    name = schema.digests.find(digest.digest_id).name
    return DigestConfig(name, config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns)


_ENGINE = "packet_replication_engine_entry"
_KINDS: Mapping[type[Any], _Kind] = {
    TableEntry: _Kind(("table_entry",), _encode_table_entry, _decode_table_entry),
    CounterEntry: _Kind(("counter_entry",), _encode_counter, _decode_counter),
    MeterEntry: _Kind(("meter_entry",), _encode_meter, _decode_meter),
    MulticastGroup: _Kind((_ENGINE, "multicast_group_entry"), _encode_group, _decode_group),
    DigestConfig: _Kind(("digest_entry",), _encode_digest, _decode_digest),
}
"""Every kind of entry, once."""
_BY_PATH = {kind.path: kind for kind in _KINDS.values()}


def decode_data(data: p4d.P4Data) -> tuple[int, ...]:
    """The values of one digest message: those of a struct or tuple, or a single bit string."""
    kind = data.WhichOneof("data")
    if kind in ("struct", "tuple"):
        return tuple(value for member in getattr(data, kind).members for value in decode_data(member))
    if kind == "bitstring":
        return (bytestrings.decode(data.bitstring),)
    if kind == "bool":
        return (int(data.bool),)
    raise SchemaError(f"a digest member of kind {kind} is not supported by this client")

"""Entries by name <-> P4Runtime entities by id."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import reduce
from typing import Any

from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from p4reduce_contracts.p4.v1 import p4data_pb2 as p4d
from p4reduce_contracts.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_contracts.p4runtime import bytestrings, quirks
from p4reduce_contracts.p4runtime.entries import (
    ActionProfileGroup,
    ActionProfileMember,
    CloneSession,
    CounterData,
    CounterEntry,
    DigestConfig,
    DirectCounterEntry,
    DirectMeterEntry,
    Entry,
    MatchValue,
    MeterConfig,
    MeterEntry,
    MulticastGroup,
    RegisterEntry,
    TableEntry,
    ValueSetEntry,
    WeightedAction,
)
from p4reduce_contracts.p4runtime.errors import SchemaError
from p4reduce_contracts.p4runtime.schema import FieldInfo, RegisterInfo, Schema, by_id


@dataclass(frozen=True)
class _Kind:
    """How one kind of entry stands in an Entity: `path` names the fields that lead to its message."""

    path: tuple[str, ...]
    encode: Callable[[Schema, Any, Any], None]
    decode: Callable[[Schema, Any], Entry]


def encode(schema: Schema, entry: Entry) -> p4r.Entity:
    """Return the P4Runtime Entity of an entry; SchemaError when a name or a value does not fit the program."""
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
    """The path to the one message that an Entity holds, and that message."""
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
        return bytestrings.encode(value, info.bitwidth)
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
    out.idle_timeout_ns = entry.idle_timeout_ns
    where = f"table {table.name}"
    if entry.action is not None:
        _encode_action(schema, table.action_ids, entry.action, entry.params, where, out.action.action)
    elif entry.member is not None:
        out.action.action_profile_member_id = entry.member
    elif entry.group is not None:
        out.action.action_profile_group_id = entry.group
    elif entry.action_set is not None:
        out.action.action_profile_action_set.SetInParent()
        for action, params, weight, watch_port in entry.action_set:
            added = out.action.action_profile_action_set.action_profile_actions.add(weight=weight)
            _encode_action(schema, table.action_ids, action, params, where, added.action)
            _encode_watch_port(watch_port, added)
    if entry.counter is not None:
        _encode_counts(entry.counter, out.counter_data)
    if entry.meter is not None:
        _encode_config(entry.meter, out.meter_config)


def _encode_match(key: FieldInfo, value: MatchValue, where: str, out: p4r.TableEntry | p4r.ValueSetMember) -> None:
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


def _encode_action(
    schema: Schema, allowed: Collection[int], name: str, params: Mapping[str, int], where: str, out: p4r.Action
) -> None:
    action = schema.actions[name]
    if action.id not in allowed:
        names = ", ".join(schema.actions.find(id).name for id in sorted(allowed))
        raise SchemaError(f"{where} has no action {action.name}; it has: {names}")
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


def _encode_watch_port(port: int, out: p4r.ActionProfileAction | p4r.ActionProfileGroup.Member) -> None:
    if port:
        try:
            out.watch_port = bytestrings.encode(port, 32)
        except ValueError as error:
            raise SchemaError(f"watch port: {error}") from error


def _decode_watch_port(weighted: p4r.ActionProfileAction | p4r.ActionProfileGroup.Member) -> int:
    """The watch port, whichever of the two fields carries it; 0 for none."""
    return bytestrings.decode(weighted.watch_port) or int(weighted.watch)


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
    member = group = action_set = None
    match entry.action.WhichOneof("type"):
        case "action":
            action_name, params = _decode_action(schema, entry.action.action)
        case "action_profile_member_id":
            member = int(entry.action.action_profile_member_id)
        case "action_profile_group_id":
            group = int(entry.action.action_profile_group_id)
        case "action_profile_action_set":
            action_set = tuple(
                WeightedAction(*_decode_action(schema, given.action), int(given.weight), _decode_watch_port(given))
                for given in entry.action.action_profile_action_set.action_profile_actions
            )
    counter = None
    if entry.HasField("counter_data"):
        counter = CounterData(entry.counter_data.packet_count, entry.counter_data.byte_count)
    meter = _decode_config(entry.meter_config) if entry.HasField("meter_config") else None
    return TableEntry(
        table.name,
        match,
        action_name,
        params,
        entry.priority,
        entry.is_default_action,
        counter,
        meter,
        member,
        group,
        action_set,
        int(entry.idle_timeout_ns),
    )


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


def _encode_counts(counts: CounterData | CounterEntry | DirectCounterEntry, out: p4r.CounterData) -> None:
    out.packet_count, out.byte_count = counts.packets, counts.bytes


def _encode_counter(schema: Schema, entry: CounterEntry, out: p4r.CounterEntry) -> None:
    out.counter_id = schema.counters[entry.counter].id
    if entry.index is not None:
        out.index.index = entry.index
    _encode_counts(entry, out.data)


def _decode_counter(schema: Schema, cell: p4r.CounterEntry) -> CounterEntry:
    counter = schema.counters.find(cell.counter_id)
    return CounterEntry(counter.name, cell.index.index, cell.data.packet_count, cell.data.byte_count)


def _encode_direct_counter(schema: Schema, entry: DirectCounterEntry, out: p4r.DirectCounterEntry) -> None:
    _encode_table_entry(schema, replace(entry.entry, action=None), out.table_entry)
    _encode_counts(entry, out.data)


def _decode_direct_counter(schema: Schema, direct: p4r.DirectCounterEntry) -> DirectCounterEntry:
    entry = _decode_table_entry(schema, direct.table_entry)
    return DirectCounterEntry(entry, direct.data.packet_count, direct.data.byte_count)


def _encode_config(config: MeterConfig, out: p4r.MeterConfig) -> None:
    """SchemaError when a number is not one of a rate or burst."""
    out.SetInParent()
    for name, value in asdict(config).items():
        try:
            setattr(out, name, value)
        except (TypeError, ValueError) as error:
            raise SchemaError(f"{name} {value!r} of a meter is not a whole number of 64 bits with a sign") from error


def _decode_config(config: p4r.MeterConfig) -> MeterConfig:
    return MeterConfig(config.cir, config.cburst, config.pir, config.pburst)


def _encode_meter(schema: Schema, entry: MeterEntry, out: p4r.MeterEntry) -> None:
    out.meter_id = schema.meters[entry.meter].id
    if entry.index is not None:
        out.index.index = entry.index
    if entry.config is not None:
        _encode_config(entry.config, out.config)


def _decode_meter(schema: Schema, cell: p4r.MeterEntry) -> MeterEntry:
    config = _decode_config(cell.config) if cell.HasField("config") else None
    return MeterEntry(schema.meters.find(cell.meter_id).name, cell.index.index, config)


def _encode_direct_meter(schema: Schema, entry: DirectMeterEntry, out: p4r.DirectMeterEntry) -> None:
    _encode_table_entry(schema, replace(entry.entry, action=None), out.table_entry)
    if entry.config is not None:
        _encode_config(entry.config, out.config)


def _decode_direct_meter(schema: Schema, direct: p4r.DirectMeterEntry) -> DirectMeterEntry:
    config = _decode_config(direct.config) if direct.HasField("config") else None
    return DirectMeterEntry(_decode_table_entry(schema, direct.table_entry), config)


def _encode_group(schema: Schema, group: MulticastGroup, out: p4r.MulticastGroupEntry) -> None:
    out.multicast_group_id = group.group_id
    _encode_replicas(group.replicas, out.replicas)


def _decode_group(schema: Schema, group: p4r.MulticastGroupEntry) -> MulticastGroup:
    return MulticastGroup(group.multicast_group_id, _decode_replicas(group.replicas))


def _encode_session(schema: Schema, session: CloneSession, out: p4r.CloneSessionEntry) -> None:
    out.session_id = session.session_id
    out.class_of_service = session.class_of_service
    out.packet_length_bytes = session.packet_length_bytes
    _encode_replicas(session.replicas, out.replicas)


def _decode_session(schema: Schema, session: p4r.CloneSessionEntry) -> CloneSession:
    replicas = _decode_replicas(session.replicas)
    return CloneSession(session.session_id, replicas, session.packet_length_bytes, session.class_of_service)


def _encode_digest(schema: Schema, digest: DigestConfig, out: p4r.DigestEntry) -> None:
    out.digest_id = schema.digests[digest.name].id
    out.config.max_timeout_ns = digest.max_timeout_ns
    out.config.max_list_size = digest.max_list_size
    out.config.ack_timeout_ns = digest.ack_timeout_ns


def _decode_digest(schema: Schema, digest: p4r.DigestEntry) -> DigestConfig:
    config = digest.config
    name = schema.digests.find(digest.digest_id).name
    return DigestConfig(name, config.max_timeout_ns, config.max_list_size, config.ack_timeout_ns)


def _encode_member(schema: Schema, member: ActionProfileMember, out: p4r.ActionProfileMember) -> None:
    profile = schema.action_profiles[member.profile]
    out.action_profile_id, out.member_id = profile.id, _id(member.member_id)
    if member.action is not None:
        allowed = {id for table in profile.table_ids for id in schema.tables.find(table).action_ids}
        where = f"action profile {profile.name}"
        _encode_action(schema, allowed, member.action, member.params, where, out.action)


def _decode_member(schema: Schema, member: p4r.ActionProfileMember) -> ActionProfileMember:
    name = schema.action_profiles.find(member.action_profile_id).name
    return ActionProfileMember(name, member.member_id, *_decode_action(schema, member.action))


def _encode_profile_group(schema: Schema, group: ActionProfileGroup, out: p4r.ActionProfileGroup) -> None:
    out.action_profile_id, out.group_id = schema.action_profiles[group.profile].id, _id(group.group_id)
    out.max_size = group.max_size
    for member, weight, watch_port in group.members:
        _encode_watch_port(watch_port, out.members.add(member_id=_id(member), weight=weight))


def _decode_profile_group(schema: Schema, group: p4r.ActionProfileGroup) -> ActionProfileGroup:
    """Its members sorted: the spec gives them no order."""
    members = tuple(sorted((each.member_id, each.weight, _decode_watch_port(each)) for each in group.members))
    name = schema.action_profiles.find(group.action_profile_id).name
    return ActionProfileGroup(name, group.group_id, members, group.max_size)


def _id(id: int) -> int:
    if not 0 <= id < 1 << 32:
        raise SchemaError(f"the id {id} of a member or group does not fit 32 bits")
    return id


def _encode_register(schema: Schema, entry: RegisterEntry, out: p4r.RegisterEntry) -> None:
    register = schema.registers[entry.register]
    out.register_id = register.id
    if entry.index is not None:
        out.index.index = entry.index
    if entry.value is not None:
        encode_cell(register, entry.value, out.data)


def _decode_register(schema: Schema, cell: p4r.RegisterEntry) -> RegisterEntry:
    register = schema.registers.find(cell.register_id)
    value = decode_cell(register, cell.data) if cell.HasField("data") else None
    return RegisterEntry(register.name, cell.index.index, value)


def encode_cell(register: RegisterInfo, value: int, out: p4d.P4Data) -> None:
    """Write a register cell as P4Data; SchemaError for values that do not fit, and types without a single number."""
    low = -(1 << register.bitwidth - 1) if register.kind == "int" else 0
    if not register.kind:
        raise SchemaError(f"register {register.name} has cells of a type that is not one number; not supported")
    if not low <= value < low + (1 << register.bitwidth):
        raise SchemaError(f"register {register.name}: {value} does not fit its cells of {register.bitwidth} bits")
    if register.kind == "bool":
        out.bool = bool(value)
    else:
        data = bytestrings.encode(value & (1 << register.bitwidth) - 1, register.bitwidth)
        setattr(out, "enum_value" if register.kind == "enum" else "bitstring", data)


def decode_cell(register: RegisterInfo, data: p4d.P4Data) -> int:
    """The value of a register cell; SchemaError when the P4Data is not of its type, or does not fit."""
    wanted = {"bool": "bool", "enum": "enum_value", "bit": "bitstring", "int": "bitstring"}.get(register.kind)
    if wanted is None:
        raise SchemaError(f"register {register.name} has cells of a type that is not one number; not supported")
    if data.WhichOneof("data") != wanted:
        raise SchemaError(f"register {register.name} has cells of type {register.kind}, in the field {wanted}")
    if wanted == "bool":
        return int(data.bool)
    value = bytestrings.decode(getattr(data, wanted))
    if value >> register.bitwidth:
        raise SchemaError(f"register {register.name}: {value} does not fit its cells of {register.bitwidth} bits")
    negative = register.kind == "int" and value >> register.bitwidth - 1
    return value - (1 << register.bitwidth) if negative else value


def _encode_value_set(schema: Schema, entry: ValueSetEntry, out: p4r.ValueSetEntry) -> None:
    value_set = schema.value_sets[entry.value_set]
    out.value_set_id = value_set.id
    for member in entry.members:
        if len(member) != len(value_set.keys):
            raise SchemaError(f"value set {value_set.name}: a member has {len(value_set.keys)} values, not {member}")
        added = out.members.add()
        for key, value in zip(value_set.keys, member, strict=True):
            if value is not None:
                _encode_match(key, value, f"value set {value_set.name}", added)


def _decode_value_set(schema: Schema, entry: p4r.ValueSetEntry) -> ValueSetEntry:
    value_set = schema.value_sets.find(entry.value_set_id)
    members = []
    for member in entry.members:
        given = {field.field_id: _decode_match(field) for field in member.match}
        members.append(tuple(given.get(key.id) for key in value_set.keys))
    return ValueSetEntry(value_set.name, tuple(members))


def _encode_replicas(replicas: tuple[tuple[int, int], ...], out: RepeatedCompositeFieldContainer[p4r.Replica]) -> None:
    for port, instance in replicas:
        quirks.set_replica_port(out.add(instance=instance), port)


def _decode_replicas(replicas: Iterable[p4r.Replica]) -> tuple[tuple[int, int], ...]:
    """(port, instance) pairs, sorted: the spec gives replicas no order."""
    return tuple(sorted((quirks.replica_port(replica), replica.instance) for replica in replicas))


_ENGINE = "packet_replication_engine_entry"
_KINDS: Mapping[type[Any], _Kind] = {
    TableEntry: _Kind(("table_entry",), _encode_table_entry, _decode_table_entry),
    CounterEntry: _Kind(("counter_entry",), _encode_counter, _decode_counter),
    DirectCounterEntry: _Kind(("direct_counter_entry",), _encode_direct_counter, _decode_direct_counter),
    MeterEntry: _Kind(("meter_entry",), _encode_meter, _decode_meter),
    DirectMeterEntry: _Kind(("direct_meter_entry",), _encode_direct_meter, _decode_direct_meter),
    MulticastGroup: _Kind((_ENGINE, "multicast_group_entry"), _encode_group, _decode_group),
    CloneSession: _Kind((_ENGINE, "clone_session_entry"), _encode_session, _decode_session),
    DigestConfig: _Kind(("digest_entry",), _encode_digest, _decode_digest),
    ActionProfileMember: _Kind(("action_profile_member",), _encode_member, _decode_member),
    ActionProfileGroup: _Kind(("action_profile_group",), _encode_profile_group, _decode_profile_group),
    RegisterEntry: _Kind(("register_entry",), _encode_register, _decode_register),
    ValueSetEntry: _Kind(("value_set_entry",), _encode_value_set, _decode_value_set),
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

"""A program's names, ids and widths, from its P4Info."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from google.protobuf import text_format

from p4reduce_runtime.p4.config.v1 import p4info_pb2 as p4i
from p4reduce_runtime.p4.config.v1 import p4types_pb2 as p4t
from p4reduce_runtime.p4runtime.errors import SchemaError

_KINDS = {
    p4i.MatchField.EXACT: "exact",
    p4i.MatchField.LPM: "lpm",
    p4i.MatchField.TERNARY: "ternary",
    p4i.MatchField.RANGE: "range",
    p4i.MatchField.OPTIONAL: "optional",
}
_UNITS = {
    p4i.CounterSpec.PACKETS: (True, False),
    p4i.CounterSpec.BYTES: (False, True),
    p4i.CounterSpec.BOTH: (True, True),
}
_METER_UNITS = {p4i.MeterSpec.PACKETS: "packets", p4i.MeterSpec.BYTES: "bytes"}


UNSIZED_BITS = 32
"""Bits of an error, or of an enum without a type: p4c gives them no width in P4Info, and this one in the BMv2 JSON."""


@dataclass(frozen=True)
class FieldInfo:
    """A match key, an action parameter, a metadata field or a digest member.

    `kind` is the match kind of a key, "bool" for a digest member of that type, else "".
    `bitwidth` is P4Runtime's: 0 for a key or parameter whose type it translates to strings.
    """

    id: int
    name: str
    bitwidth: int
    kind: str = ""
    own_type: bool = False
    """Whether the program gives it a type of its own, which P4Runtime may show wider or narrower than it is."""


@dataclass(frozen=True)
class ObjectInfo:
    """An object of a program."""

    id: int
    name: str
    alias: str


@dataclass(frozen=True)
class ActionInfo(ObjectInfo):
    """An action and its parameters in order."""

    params: tuple[FieldInfo, ...]


@dataclass(frozen=True)
class TableInfo(ObjectInfo):
    """A table. `default_only` actions cannot be used in entries, `entry_only` ones not as default."""

    keys: tuple[FieldInfo, ...]
    action_ids: tuple[int, ...]
    default_only: frozenset[int]
    entry_only: frozenset[int]
    const_default: bool
    size: int
    const: bool
    profile_id: int
    """The action profile that its entries refer to; 0 when they have actions of their own."""
    has_idle_timeout: bool

    @property
    def needs_priority(self) -> bool:
        """Whether entries must carry a priority above 0."""
        return any(key.kind in ("ternary", "range", "optional") for key in self.keys)


@dataclass(frozen=True)
class CounterInfo(ObjectInfo):
    """An indirect counter. It counts packets, bytes or both."""

    packets: bool
    bytes: bool


@dataclass(frozen=True)
class MeterInfo(ObjectInfo):
    """An indirect meter. It has two rates; `unit` is "packets" or "bytes"."""

    size: int
    unit: str


@dataclass(frozen=True)
class DigestInfo(ObjectInfo):
    """A digest; `fields` are the members of its struct or tuple, in order, or the one value it is (`kind` "")."""

    fields: tuple[FieldInfo, ...]
    kind: str


@dataclass(frozen=True)
class ActionProfileInfo(ObjectInfo):
    """An action profile, or with `has_selector` an action selector.

    `max_group_size` of a selector limits each group (0: no limit): the sum of their weights, or with `counts_members`
    the number of their members, none of which has a weight above `max_member_weight` (0: no limit).
    """

    has_selector: bool
    max_group_size: int
    counts_members: bool
    max_member_weight: int


@dataclass(frozen=True)
class RegisterInfo(ObjectInfo):
    """A register array. `kind` says what a cell is in P4Data: "bit", "int" (two's complement), "bool", or "enum".

    An "enum" is one with an underlying type. `kind` "" stands for types that P4Runtime has no single number for.
    """

    kind: str
    bitwidth: int


@dataclass(frozen=True)
class ValueSetInfo(ObjectInfo):
    """A parser value set: members have one value for each of its keys, in order."""

    keys: tuple[FieldInfo, ...]
    size: int


Info = TypeVar("Info", bound=ObjectInfo)


class Directory(Generic[Info]):
    """Things of one kind, found by id, by full name ("MainIngress.admission.admit") or by alias ("admit")."""

    def __init__(self, kind: str, items: Iterable[Info]) -> None:
        self.kind = kind
        self.by_id: dict[int, Info] = {item.id: item for item in items}
        self._by_name: dict[str, Info] = {item.alias: item for item in self.by_id.values()}
        self._by_name.update({item.name: item for item in self.by_id.values()})

    def __getitem__(self, name: str) -> Info:
        try:
            return self._by_name[name]
        except KeyError:
            known = ", ".join(sorted(item.name for item in self.by_id.values())) or "none"
            raise SchemaError(f"the program has no {self.kind} {name!r}; it has: {known}") from None

    def find(self, id: int) -> Info:
        """Return the object with an id; SchemaError when the program has none of that id."""
        try:
            return self.by_id[id]
        except KeyError:
            raise SchemaError(f"the program has no {self.kind} with id {id} (0x{id:08x})") from None

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[Info]:
        return iter(self.by_id.values())


@dataclass(frozen=True)
class Schema:
    """The objects of a program in P4Info, by name and by id."""

    tables: Directory[TableInfo]
    actions: Directory[ActionInfo]
    counters: Directory[CounterInfo]
    meters: Directory[MeterInfo]
    digests: Directory[DigestInfo]
    action_profiles: Directory[ActionProfileInfo]
    registers: Directory[RegisterInfo]
    value_sets: Directory[ValueSetInfo]
    packet_in: tuple[FieldInfo, ...]
    packet_out: tuple[FieldInfo, ...]
    p4info: p4i.P4Info

    @classmethod
    def from_p4info(cls, p4info: p4i.P4Info | str) -> Schema:
        """From a P4Info message or its text form.

        SchemaError if it is inconsistent, or if P4Runtime translates to strings what no table holds.
        """
        if isinstance(p4info, str):
            try:
                p4info = parse_p4info(p4info)
            except ValueError as error:
                raise SchemaError(str(error)) from error
        for direct in p4info.direct_meters:
            _unit_of(direct)
        headers = {header.preamble.name: header for header in p4info.controller_packet_metadata}
        schema = cls(
            tables=Directory("table", [_table(table) for table in p4info.tables]),
            actions=Directory("action", [_action(action) for action in p4info.actions]),
            counters=Directory("counter", map(counter_info, p4info.counters)),
            meters=Directory("meter", [MeterInfo(*_of(m), m.size, _unit_of(m)) for m in p4info.meters]),
            digests=Directory("digest", [_digest(digest, p4info.type_info) for digest in p4info.digests]),
            action_profiles=Directory("action profile", [_profile(profile) for profile in p4info.action_profiles]),
            registers=Directory("register", [_register(register, p4info.type_info) for register in p4info.registers]),
            value_sets=Directory("value set", [_value_set(value_set) for value_set in p4info.value_sets]),
            packet_in=_sized(_fields(headers["packet_in"].metadata)) if "packet_in" in headers else (),
            packet_out=_sized(_fields(headers["packet_out"].metadata)) if "packet_out" in headers else (),
            p4info=p4info,
        )
        for table in schema.tables:
            for action_id in table.action_ids:
                schema.actions.find(action_id)
            if table.profile_id:
                schema.action_profiles.find(table.profile_id)
        return schema


def parse_p4info(text: str) -> p4i.P4Info:
    """Return the P4Info of a text form (`*.p4info.txtpb`). Raises ValueError when it is not P4Info."""
    try:
        text.encode()  # half a surrogate pair is text to Python, and a SystemError to protobuf
        return text_format.Parse(text, p4i.P4Info())
    except (UnicodeEncodeError, text_format.ParseError) as error:
        raise ValueError(f"not a P4Info in text form: {error}") from error


def by_id(fields: Iterable[FieldInfo]) -> Mapping[int, FieldInfo]:
    """Fields by their id."""
    return {field.id: field for field in fields}


def _width(field: p4i.MatchField | p4i.Action.Param | p4i.ControllerPacketMetadata.Metadata) -> int:
    """Bits of a key, a parameter or a metadata field; 0 for a type that P4Runtime translates to strings."""
    return int(field.bitwidth) or (0 if field.HasField("type_name") else UNSIZED_BITS)


def _fields(fields: Iterable[p4i.Action.Param | p4i.ControllerPacketMetadata.Metadata]) -> tuple[FieldInfo, ...]:
    return tuple(FieldInfo(field.id, field.name, _width(field)) for field in fields)


def _sized(fields: tuple[FieldInfo, ...]) -> tuple[FieldInfo, ...]:
    """The same fields; SchemaError if P4Runtime translates the type of any to strings."""
    for field in fields:
        if field.bitwidth <= 0:
            raise SchemaError(f"{field.name} has no bit width (a translated type); not supported")
    return fields


def _of(declared: Any) -> tuple[int, str, str]:
    return declared.preamble.id, declared.preamble.name, declared.preamble.alias


def _table(table: p4i.Table) -> TableInfo:
    scope = {ref.id: ref.scope for ref in table.action_refs}
    return TableInfo(
        *_of(table),
        keys=_keys(table.match_fields, f"table {table.preamble.name}"),
        action_ids=tuple(scope),
        default_only=frozenset(id for id, value in scope.items() if value == p4i.ActionRef.DEFAULT_ONLY),
        entry_only=frozenset(id for id, value in scope.items() if value == p4i.ActionRef.TABLE_ONLY),
        const_default=bool(table.const_default_action_id),
        size=table.size,
        const=table.is_const_table,
        profile_id=table.implementation_id,
        has_idle_timeout=table.idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL,
    )


def _keys(fields: Iterable[p4i.MatchField], where: str) -> tuple[FieldInfo, ...]:
    """Match keys; SchemaError for kinds other than the five of `MatchField.MatchType`."""
    keys = []
    for key in fields:
        if key.match_type not in _KINDS:
            raise SchemaError(f"key {key.name} of {where} has a match kind not supported")
        keys.append(FieldInfo(key.id, key.name, _width(key), _KINDS[key.match_type], key.HasField("type_name")))
    return tuple(keys)


def _action(action: p4i.Action) -> ActionInfo:
    return ActionInfo(*_of(action), _fields(action.params))


def counter_info(counter: p4i.Counter | p4i.DirectCounter) -> CounterInfo:
    """Return what P4Info says of a counter, which may be a direct one."""
    packets, octets = _UNITS.get(counter.spec.unit, (True, True))
    return CounterInfo(*_of(counter), packets, octets)


def _unit_of(meter: p4i.Meter | p4i.DirectMeter) -> str:
    """ "packets" or "bytes"; SchemaError for a meter without two rates."""
    if meter.spec.type != p4i.MeterSpec.TWO_RATE_THREE_COLOR or meter.spec.unit not in _METER_UNITS:
        raise SchemaError(f"meter {meter.preamble.name} does not have two rates and a unit; not supported")
    return _METER_UNITS[meter.spec.unit]


def _profile(profile: p4i.ActionProfile) -> ActionProfileInfo:
    members = profile.sum_of_members if profile.HasField("sum_of_members") else None
    weight = 0 if members is None else members.max_member_weight
    return ActionProfileInfo(*_of(profile), profile.with_selector, profile.max_group_size, members is not None, weight)


def _register(register: p4i.Register, type_info: p4t.P4TypeInfo) -> RegisterInfo:
    spec = _original(register.type_spec, type_info)
    kind, bits = "", 0
    match spec.WhichOneof("type_spec"):
        case "bool":
            kind, bits = "bool", 1
        case "bitstring" if spec.bitstring.WhichOneof("type_spec") in ("bit", "int"):
            kind = spec.bitstring.WhichOneof("type_spec")
            bits = getattr(spec.bitstring, kind).bitwidth
        case "serializable_enum":
            declared = type_info.serializable_enums
            if spec.serializable_enum.name in declared:
                kind, bits = "enum", declared[spec.serializable_enum.name].underlying_type.bitwidth
    return RegisterInfo(*_of(register), kind, bits)


def _value_set(value_set: p4i.ValueSet) -> ValueSetInfo:
    keys = _sized(_keys(value_set.match, f"value set {value_set.preamble.name}"))
    return ValueSetInfo(*_of(value_set), keys, value_set.size)


def _original(spec: p4t.P4DataTypeSpec, type_info: p4t.P4TypeInfo) -> p4t.P4DataTypeSpec:
    passed: set[str] = set()
    while spec.WhichOneof("type_spec") == "new_type" and spec.new_type.name not in passed:
        passed.add(spec.new_type.name)
        spec = type_info.new_types[spec.new_type.name].original_type
    return spec


def _digest(digest: p4i.Digest, type_info: p4t.P4TypeInfo) -> DigestInfo:
    """A digest of a struct or tuple of bit strings, or of one bit string; SchemaError for anything else."""
    preamble, spec = digest.preamble, digest.type_spec
    kind = spec.WhichOneof("type_spec")
    if kind == "struct":
        members = [(m.name, m.type_spec) for m in type_info.structs[spec.struct.name].members]
    elif kind == "tuple":
        members = [(f"f{i}", member) for i, member in enumerate(spec.tuple.members)]
    else:
        members = [(preamble.alias, spec)]
        kind = ""
    where = f"digest {preamble.name}"
    fields = tuple(_member(i, *member, type_info, where) for i, member in enumerate(members, 1))
    return DigestInfo(*_of(digest), fields, kind)


def _member(id: int, name: str, spec: p4t.P4DataTypeSpec, type_info: p4t.P4TypeInfo, where: str) -> FieldInfo:
    """A member of a digest: a bit string (new types are looked through) or a bool."""
    spec = _original(spec, type_info)
    kind = spec.WhichOneof("type_spec")
    if kind == "bool":
        return FieldInfo(id, name, 1, "bool")
    if kind == "bitstring" and spec.bitstring.WhichOneof("type_spec") == "bit":
        return FieldInfo(id, name, spec.bitstring.bit.bitwidth)
    raise SchemaError(f"{where} has a member {name} that is not an unsigned bit string; not supported")

"""A program bound to its P4Info, and Write and Read of its entities, by the kind of entity and the object's id."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.errors import SchemaError
from p4reduce_runtime.p4runtime.schema import ActionInfo, Directory, FieldInfo, ObjectInfo, Schema, TableInfo
from p4reduce_switch.p4runtime.action_profiles import BoundProfile
from p4reduce_switch.p4runtime.digests import Digests
from p4reduce_switch.p4runtime.encoding import PacketHeader
from p4reduce_switch.p4runtime.idle_timeouts import IdleTimeouts, monotonic_us
from p4reduce_switch.p4runtime.indirect import BoundCounter, BoundMeter, BoundRegister, BoundValueSet
from p4reduce_switch.p4runtime.replication import ReplicationEngine
from p4reduce_switch.p4runtime.status import Code, RequestError, invalid_argument, request_error
from p4reduce_switch.p4runtime.tables import BoundTable
from p4reduce_switch.program import Config, Program, ProgramError, UnsupportedConstructError

BoundT = TypeVar("BoundT")
InfoT = TypeVar("InfoT", bound=ObjectInfo)
StateT = TypeVar("StateT")

_OPERATIONS = (p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE)


class _Kind(Protocol):
    """The functions that write and read one kind of entity."""

    def write(self, operation: p4r.Update.Type, request: Any, /) -> None: ...

    def read(self, query: Any, /) -> Iterable[p4r.Entity]: ...


class _ById(Generic[BoundT]):
    """A kind of entity that names an object of the program by its P4Info id; in a query 0 stands for all objects.

    An unknown id is INVALID_ARGUMENT.
    """

    def __init__(
        self,
        kind: str,
        objects: Mapping[int, BoundT],
        id_field: str,
        write: Callable[[BoundT, p4r.Update.Type, Any], None],
        read: Callable[[BoundT, Any], Iterable[p4r.Entity]],
        unavailable: Mapping[int, str] | None = None,
    ) -> None:
        """`unavailable` has the reason for an id that P4Info lists and the program does not have."""
        self._kind, self._objects, self._unavailable = kind, objects, unavailable or {}
        self._id_of, self._write, self._read = attrgetter(id_field), write, read

    def write(self, operation: p4r.Update.Type, request: Any) -> None:
        self._write(self._object(self._id_of(request)), operation, request)

    def read(self, query: Any) -> Iterator[p4r.Entity]:
        id = self._id_of(query)
        for bound in [self._object(id)] if id else self._objects.values():
            yield from self._read(bound, query)

    def _object(self, id: int) -> BoundT:
        if id not in self._objects:
            invalid_argument(self._unavailable.get(id, f"the program has no {self._kind} with id {id}"))
        return self._objects[id]


class Pipeline:
    """A loaded ForwardingPipelineConfig: the program, and its entities that controllers write and read.

    Callers of its methods hold the switch's lock.
    """

    def __init__(
        self,
        config: p4r.ForwardingPipelineConfig,
        schema: Schema,
        program: Program,
        digests: Digests,
        idle_timeouts: IdleTimeouts,
    ) -> None:
        """Match P4Info to program by name; INVALID_ARGUMENT when they are not of one program."""
        self.config, self.program, self.digests, self.idle_timeouts = config, program, digests, idle_timeouts
        actions = _with_program_widths(schema.actions, program)
        profiles = {
            info.id: BoundProfile(info, state, (t for t in schema.tables if t.profile_id == info.id), actions)
            for info, state in _used(schema.action_profiles, program.action_profiles)
        }
        self.tables = tables = {
            info.id: BoundTable(info, table, actions, profiles, idle_timeouts)
            for info, table in _paired("table", _applied(schema, program), program.tables)
        }
        unapplied = {
            info.id: f"nothing in the program applies table {info.name}, so it takes no entries"
            for info in schema.tables
            if info.id not in tables
        }
        register_pairs = _used(schema.registers, program.registers)
        for register_info, register in register_pairs:
            if register_info.kind and register_info.bitwidth != register.bitwidth:
                invalid_argument(
                    f"p4info and program do not belong together: the cells of register {register_info.name} differ"
                )
        set_pairs = _used(schema.value_sets, program.value_sets)
        for set_info, value_set in set_pairs:
            if tuple(key.bitwidth for key in set_info.keys) != tuple(value_set.widths):
                invalid_argument(
                    f"p4info and program do not belong together: the keys of value set {set_info.name} differ"
                )
        try:
            self.packet_in = PacketHeader.of(schema.packet_in)
            self.packet_out = PacketHeader.of(schema.packet_out)
        except ValueError as error:
            raise RequestError(Code.INVALID_ARGUMENT, f"p4info: {error}") from error
        counters = _bound(BoundCounter, _paired("counter", schema.counters, program.counters))
        meters = _bound(BoundMeter, _paired("meter", schema.meters, program.meters))
        registers, value_sets = _bound(BoundRegister, register_pairs), _bound(BoundValueSet, set_pairs)
        table, of_table = partial(_ById, "table", tables, unavailable=unapplied), "table_entry.table_id"
        profile = partial(_ById, "action profile", profiles, "action_profile_id")
        self._kinds: Mapping[str, _Kind] = {
            "table_entry": table("table_id", BoundTable.write, BoundTable.read),
            "direct_counter_entry": table(of_table, BoundTable.write_counter, BoundTable.read_counters),
            "direct_meter_entry": table(of_table, BoundTable.write_meter, BoundTable.read_meters),
            "action_profile_member": profile(BoundProfile.write_member, BoundProfile.read_members),
            "action_profile_group": profile(BoundProfile.write_group, BoundProfile.read_groups),
            "counter_entry": _ById("counter", counters, "counter_id", BoundCounter.write, BoundCounter.read),
            "meter_entry": _ById("meter", meters, "meter_id", BoundMeter.write, BoundMeter.read),
            "register_entry": _ById("register", registers, "register_id", BoundRegister.write, BoundRegister.read),
            "value_set_entry": _ById("value set", value_sets, "value_set_id", BoundValueSet.write, BoundValueSet.read),
            "packet_replication_engine_entry": ReplicationEngine(program.replication),
            "digest_entry": digests,
        }

    def write(self, update: p4r.Update) -> RequestError | None:
        """Apply one update; return the error when it was not applied."""
        try:
            if update.type not in _OPERATIONS:
                invalid_argument("the update has no valid type")
            kind, request = self._kind_of(update.entity)
            kind.write(update.type, request)
        except RequestError as error:
            return error
        except (ProgramError, ValueError, LookupError) as error:
            return request_error(error)
        return None

    def read(self, query: p4r.Entity) -> list[p4r.Entity]:
        """Return the entities for one entity of a ReadRequest."""
        kind, request = self._kind_of(query)
        try:
            return list(kind.read(request))
        except ProgramError as error:
            raise request_error(error) from error

    def _kind_of(self, entity: p4r.Entity) -> tuple[_Kind, Any]:
        """Return the handler for an entity, and the message in it."""
        name = entity.WhichOneof("entity")
        if name is None:
            invalid_argument("the entity is empty")
        if name not in self._kinds:
            raise RequestError(Code.UNIMPLEMENTED, f"{name} is not supported through P4Runtime by this switch")
        return self._kinds[name], getattr(entity, name)

    def remove_initial_entries(self, last: Pipeline) -> None:
        """Remove the program's initial entries from tables that `last` has too: its forwarding state replaces them."""
        for id, bound in self.tables.items():
            if id in last.tables and not bound.info.const:
                for entry in list(bound.table.entries()):
                    bound.table.delete(entry.match, entry.priority)

    def forwarding_state(self) -> Iterator[p4r.Update]:
        """Yield the updates that bring a fresh program to this state, in an order that satisfies references."""
        for entity in self._all("action_profile_member", "action_profile_group"):
            yield p4r.Update(type=p4r.Update.INSERT, entity=entity)
        query = p4r.Entity()
        query.table_entry.meter_config.SetInParent()
        for bound in self.tables.values():
            query.table_entry.table_id = bound.info.id
            if not bound.info.const:
                entries = [entity for entity in self.read(query) if not entity.table_entry.is_const]
                for entity in entries:
                    entity.table_entry.ClearField("is_const")
                    yield p4r.Update(type=p4r.Update.INSERT, entity=entity)
            if not (bound.table.default_is_const or bound.info.const_default or bound.profile is not None):
                default = p4r.Entity(table_entry={"table_id": bound.info.id, "is_default_action": True})
                for entity in self.read(default):
                    yield p4r.Update(type=p4r.Update.MODIFY, entity=entity)
        for entity in self._all("value_set_entry", "meter_entry"):
            if entity.HasField("value_set_entry") or entity.meter_entry.HasField("config"):
                yield p4r.Update(type=p4r.Update.MODIFY, entity=entity)
        engine = "packet_replication_engine_entry"
        for entity in self._all(f"{engine}.multicast_group_entry", f"{engine}.clone_session_entry", "digest_entry"):
            yield p4r.Update(type=p4r.Update.INSERT, entity=entity)

    def _all(self, *kinds: str) -> Iterator[p4r.Entity]:
        """Yield all entities of these kinds, each given by the path of its message in an Entity."""
        for kind in kinds:
            query = p4r.Entity()
            attrgetter(kind)(query).SetInParent()
            yield from self.read(query)


def load(
    config: p4r.ForwardingPipelineConfig,
    send: Callable[[p4r.StreamMessageResponse], bool],
    changed: threading.Condition,
    load_program: Callable[[Config], Program] = Program,
    clock_us: Callable[[], int] = monotonic_us,
) -> Pipeline:
    """Load a ForwardingPipelineConfig; INVALID_ARGUMENT when it is missing or cannot be realized.

    `load_program` makes the program of a p4_device_config. `send`, `changed` and `clock_us` are for digests and idle
    timeouts: see IdleTimeouts.
    """
    program_json = program_of(config.p4_device_config)
    if not config.HasField("p4info") or not program_json:
        invalid_argument("the config needs both a p4info and a p4_device_config (the JSON of p4c-bm2-ss)")
    try:
        schema = Schema.from_p4info(config.p4info)
        program = load_program(program_json)
    except SchemaError as error:
        invalid_argument(f"p4info: {error}")
    except UnsupportedConstructError as error:
        invalid_argument(f"the program uses a construct that is not supported: {error}")
    except ProgramError as error:
        invalid_argument(f"p4_device_config: {error}")
    return Pipeline(config, schema, program, Digests(schema, send, changed), IdleTimeouts(send, changed, clock_us))


def _with_program_widths(actions: Directory[ActionInfo], program: Program) -> Directory[ActionInfo]:
    """Return the actions; parameters whose type P4Runtime translates to another number get the program's widths."""
    widths = {
        (action, parameter): width
        for table in program.tables.values()
        for action, parameters in table.action_params.items()
        for parameter, width in parameters
    }

    def fitted(action: str, param: FieldInfo) -> FieldInfo:
        return replace(param, bitwidth=widths.get((action, param.name), param.bitwidth)) if param.bitwidth else param

    return Directory(
        actions.kind,
        [replace(action, params=tuple(fitted(action.name, param) for param in action.params)) for action in actions],
    )


def _applied(schema: Schema, program: Program) -> list[TableInfo]:
    """Return P4Info's tables without those that p4c left out of the program because no packet reaches them.

    All of them when the program has tables that P4Info lacks: the two are of different programs.
    """
    named = {info.name for info in schema.tables}
    other = any(table.keys and name not in named for name, table in program.tables.items())
    return [info for info in schema.tables if other or info.name in program.tables]


def _used(infos: Iterable[InfoT], states: Mapping[str, StateT]) -> list[tuple[InfoT, StateT]]:
    """Pair what P4Info and the program have of the same name, without those that p4c left out as unused."""
    return [(info, states[info.name]) for info in infos if info.name in states]


def _paired(kind: str, infos: Iterable[InfoT], states: Mapping[str, StateT]) -> list[tuple[InfoT, StateT]]:
    """Pair what P4Info and the program have of the same name; INVALID_ARGUMENT for one that the program lacks."""
    pairs = []
    for info in infos:
        if info.name not in states:
            invalid_argument(f"p4info and program do not belong together: the program has no {kind} {info.name}")
        pairs.append((info, states[info.name]))
    return pairs


def _bound(make: Callable[[InfoT, StateT], BoundT], pairs: Iterable[tuple[InfoT, StateT]]) -> dict[int, BoundT]:
    """Return the objects by id."""
    return {info.id: make(info, state) for info, state in pairs}


# ---- p4_device_config


def _device_config_message() -> Any:
    """Return p4.tmp.P4DeviceConfig as in proto/p4/tmp/p4config.proto of PI's repository, with its `device_data` alone.

    PI, the P4Runtime server of BMv2, took this message before P4Runtime 1.0 and still takes it; older clients send it.
    BMv2 does not use the other fields, `reassign` (1) and `extras` (2).
    """
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="p4/tmp/p4config.proto", package="p4.tmp", syntax="proto3")
    config = file.message_type.add(name="P4DeviceConfig")
    config.field.add(name="device_data", number=3, type=field.TYPE_BYTES, label=field.LABEL_OPTIONAL)
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p4.tmp.P4DeviceConfig"))


_P4DeviceConfig: Any = _device_config_message()
_P4_DEVICE_CONFIG_TAGS = (1 << 3 | 0, 2 << 3 | 2, 3 << 3 | 2)
"""The first byte of a P4DeviceConfig is the tag of one of its three fields; no JSON text begins with one of them."""


def program_of(device_config: bytes) -> bytes:
    """Return the JSON of p4c-bm2-ss in a p4_device_config: the bytes themselves, or those in a P4DeviceConfig message.

    INVALID_ARGUMENT for bytes that begin as a P4DeviceConfig and are not one.
    """
    if not device_config or device_config[0] not in _P4_DEVICE_CONFIG_TAGS:
        return device_config
    try:
        return bytes(_P4DeviceConfig.FromString(device_config).device_data)
    except DecodeError:
        invalid_argument(
            "p4_device_config is neither the JSON of p4c-bm2-ss nor a P4DeviceConfig message that holds it"
        )

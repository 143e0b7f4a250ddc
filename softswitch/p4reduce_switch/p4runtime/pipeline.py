"""A program bound to its P4Info: the objects that requests refer to by id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.errors import SchemaError
from p4reduce_runtime.p4runtime.schema import ActionInfo, Directory, FieldInfo, ObjectInfo, Schema, TableInfo
from p4reduce_switch.p4runtime.action_profiles import BoundProfile
from p4reduce_switch.p4runtime.encoding import PacketHeader
from p4reduce_switch.p4runtime.idle_timeouts import IdleTimeouts
from p4reduce_switch.p4runtime.indirect import BoundCounter, BoundMeter, BoundRegister, BoundValueSet
from p4reduce_switch.p4runtime.status import Code, RequestError, invalid_argument
from p4reduce_switch.p4runtime.tables import BoundTable
from p4reduce_switch.program import Config, Program, ProgramError, UnsupportedConstructError

BoundT = TypeVar("BoundT")
InfoT = TypeVar("InfoT", bound=ObjectInfo)
StateT = TypeVar("StateT")


class Objects(Mapping[int, BoundT], Generic[BoundT]):
    """The objects of one kind that a program has, by P4Info id; an unknown id is INVALID_ARGUMENT.

    `unavailable` has the reason for an id that P4Info lists and the program does not have.
    """

    def __init__(self, kind: str, objects: Mapping[int, BoundT], unavailable: Mapping[int, str] | None = None) -> None:
        self._kind, self._objects, self._unavailable = kind, objects, unavailable or {}

    def __getitem__(self, id: int) -> BoundT:
        if id not in self._objects:
            invalid_argument(self._unavailable.get(id, f"the program has no {self._kind} with id {id}"))
        return self._objects[id]

    def __contains__(self, id: object) -> bool:
        return id in self._objects

    def __iter__(self) -> Iterator[int]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)


@dataclass(frozen=True)
class Pipeline:
    """A loaded ForwardingPipelineConfig: the program and its objects."""

    config: p4r.ForwardingPipelineConfig
    schema: Schema
    program: Program
    tables: Objects[BoundTable]
    counters: Objects[BoundCounter]
    meters: Objects[BoundMeter]
    registers: Objects[BoundRegister]
    value_sets: Objects[BoundValueSet]
    action_profiles: Objects[BoundProfile]
    packet_in: PacketHeader | None
    packet_out: PacketHeader | None


def load(
    config: p4r.ForwardingPipelineConfig,
    idle_timeouts: IdleTimeouts,
    load_program: Callable[[Config], Program] = Program,
) -> Pipeline:
    """Load a ForwardingPipelineConfig; INVALID_ARGUMENT when it is missing or cannot be realized.

    `load_program` makes the program of a p4_device_config. `idle_timeouts` are those of the tables' entries.
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
    return bind(config, schema, program, idle_timeouts)


def bind(
    config: p4r.ForwardingPipelineConfig, schema: Schema, program: Program, idle_timeouts: IdleTimeouts
) -> Pipeline:
    """Match P4Info to program by name; INVALID_ARGUMENT when they are not of one program."""
    actions = _with_program_widths(schema.actions, program)
    profiles = {
        info.id: BoundProfile(info, state, (t for t in schema.tables if t.profile_id == info.id), actions)
        for info, state in _used(schema.action_profiles, program.action_profiles)
    }
    tables = {
        info.id: BoundTable(info, table, actions, profiles, idle_timeouts)
        for info, table in _paired("table", _applied(schema, program), program.tables)
    }
    unapplied = {
        info.id: f"nothing in the program applies table {info.name}, so it takes no entries"
        for info in schema.tables
        if info.id not in tables
    }
    registers = _used(schema.registers, program.registers)
    for register_info, register in registers:
        if register_info.kind and register_info.bitwidth != register.bitwidth:
            invalid_argument(
                f"p4info and program do not belong together: the cells of register {register_info.name} differ"
            )
    value_sets = _used(schema.value_sets, program.value_sets)
    for set_info, value_set in value_sets:
        if tuple(key.bitwidth for key in set_info.keys) != tuple(value_set.widths):
            invalid_argument(f"p4info and program do not belong together: the keys of value set {set_info.name} differ")
    try:
        packet_in = PacketHeader.of(schema.packet_in)
        packet_out = PacketHeader.of(schema.packet_out)
    except ValueError as error:
        raise RequestError(Code.INVALID_ARGUMENT, f"p4info: {error}") from error
    counters = _paired("counter", schema.counters, program.counters)
    meters = _paired("meter", schema.meters, program.meters)
    return Pipeline(
        config,
        schema,
        program,
        Objects("table", tables, unapplied),
        Objects("counter", {info.id: BoundCounter(info, counter) for info, counter in counters}),
        Objects("meter", {info.id: BoundMeter(info, meter) for info, meter in meters}),
        Objects("register", {info.id: BoundRegister(info, register) for info, register in registers}),
        Objects("value set", {info.id: BoundValueSet(info, value_set) for info, value_set in value_sets}),
        Objects("action profile", profiles),
        packet_in,
        packet_out,
    )


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

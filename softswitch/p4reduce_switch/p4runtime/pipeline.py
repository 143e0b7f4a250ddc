"""A loaded program together with its P4Info: the names and ids of one matched to the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from p4reduce_contracts.p4runtime.errors import SchemaError
from p4reduce_contracts.p4runtime.schema import (
    ActionInfo,
    CounterInfo,
    Directory,
    FieldInfo,
    MeterInfo,
    RegisterInfo,
    Schema,
    TableInfo,
    ValueSetInfo,
)
from p4reduce_switch.p4runtime.action_profiles import BoundProfile
from p4reduce_switch.p4runtime.bound_table import BoundTable
from p4reduce_switch.p4runtime.device_config import program_of
from p4reduce_switch.p4runtime.packets import PacketHeader
from p4reduce_switch.p4runtime.status import Code, Refused, invalid
from p4reduce_switch.program import (
    Config,
    Counter,
    Meter,
    Program,
    ProgramError,
    Register,
    UnsupportedConstruct,
    ValueSet,
)


class _Info(Protocol):
    @property
    def id(self) -> int: ...

    @property
    def name(self) -> str: ...


InfoT = TypeVar("InfoT", bound=_Info)
StateT = TypeVar("StateT")


@dataclass(frozen=True)
class Pipeline:
    """What SetForwardingPipelineConfig made: the program and the tables that requests refer to by id."""

    config: Any
    schema: Schema
    program: Program
    tables: dict[int, BoundTable]
    counters: dict[int, tuple[CounterInfo, Counter]]
    meters: dict[int, tuple[MeterInfo, Meter]]
    registers: dict[int, tuple[RegisterInfo, Register]]
    value_sets: dict[int, tuple[ValueSetInfo, ValueSet]]
    action_profiles: dict[int, BoundProfile]
    packet_in: PacketHeader | None
    packet_out: PacketHeader | None

    def table(self, id: int) -> BoundTable:
        """By P4Info id; INVALID_ARGUMENT when there is none."""
        if id in self.tables:
            return self.tables[id]
        if id in self.schema.tables.by_id:
            invalid(f"nothing in the program applies table {self.schema.tables.by_id[id].name}, so it takes no entries")
        invalid(f"the program has no table with id {id}")

    def action_profile(self, id: int) -> BoundProfile:
        """By P4Info id; INVALID_ARGUMENT when there is none."""
        if id not in self.action_profiles:
            invalid(f"the program has no action profile with id {id}")
        return self.action_profiles[id]


def load(config: Any, load_program: Callable[[Config], Program] = Program) -> Pipeline:
    """Load a ForwardingPipelineConfig; INVALID_ARGUMENT when it is missing or cannot be realized.

    `load_program` makes the program of a p4_device_config.
    """
    program_json = program_of(config.p4_device_config)
    if not config.HasField("p4info") or not program_json:
        invalid("the config needs both a p4info and a p4_device_config (the JSON of p4c-bm2-ss)")
    try:
        schema = Schema.from_p4info(config.p4info)
        program = load_program(program_json)
    except SchemaError as error:
        invalid(f"p4info: {error}")
    except UnsupportedConstruct as error:
        invalid(f"the program uses a construct that is not supported: {error}")
    except ProgramError as error:
        invalid(f"p4_device_config: {error}")
    return bind(config, schema, program)


def bind(config: Any, schema: Schema, program: Program) -> Pipeline:
    """Matches P4Info to program by name; INVALID_ARGUMENT when they are not of one program."""
    actions = _as_wide_as_the_program(schema.actions, program)
    profiles = {
        id: BoundProfile(info, state, (t for t in schema.tables if t.profile_id == id), actions)
        for id, (info, state) in _both(schema.action_profiles, program.action_profiles).items()
    }
    tables = {
        id: BoundTable(info, table, actions, profiles)
        for id, (info, table) in _paired("table", _applied(schema, program), program.tables).items()
    }
    counters = _paired("counter", schema.counters, program.counters)
    meters = _paired("meter", schema.meters, program.meters)
    registers = _both(schema.registers, program.registers)
    for register, register_state in registers.values():
        if register.kind and register.bitwidth != register_state.bitwidth:
            invalid(f"p4info and program do not belong together: the cells of register {register.name} differ")
    value_sets = _both(schema.value_sets, program.value_sets)
    for value_set, value_set_state in value_sets.values():
        if tuple(key.bitwidth for key in value_set.keys) != tuple(value_set_state.widths):
            invalid(f"p4info and program do not belong together: the keys of value set {value_set.name} differ")
    try:
        packet_in = PacketHeader.of(schema.packet_in)
        packet_out = PacketHeader.of(schema.packet_out)
    except ValueError as error:
        raise Refused(Code.INVALID_ARGUMENT, f"p4info: {error}") from error
    return Pipeline(
        config, schema, program, tables, counters, meters, registers, value_sets, profiles, packet_in, packet_out
    )


def _as_wide_as_the_program(actions: Directory[ActionInfo], program: Program) -> Directory[ActionInfo]:
    """The actions, where P4Runtime translates the type of a parameter to another number, with the program's widths."""
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
    """P4Info's tables without those that p4c left out of the program because no frame reaches them.

    A program with tables that P4Info has not is another program's: then all of them are wanted.
    """
    named = {info.name for info in schema.tables}
    other = any(table.keys and name not in named for name, table in program.tables.items())
    return [info for info in schema.tables if other or info.name in program.tables]


def _both(infos: Iterable[InfoT], states: Mapping[str, StateT]) -> dict[int, tuple[InfoT, StateT]]:
    """As `_paired`, for what p4c leaves out of the program when nothing uses it: then it is not there."""
    return {info.id: (info, states[info.name]) for info in infos if info.name in states}


def _paired(kind: str, infos: Iterable[InfoT], states: Mapping[str, StateT]) -> dict[int, tuple[InfoT, StateT]]:
    """What P4Info says and what the program has of the same name, by P4Info id."""
    pairs: dict[int, tuple[InfoT, StateT]] = {}
    for info in infos:
        if info.name not in states:
            invalid(f"p4info and program do not belong together: the program has no {kind} {info.name}")
        pairs[info.id] = (info, states[info.name])
    return pairs

"""From the IR to the functions that execute it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from p4reduce_switch.program.errors import ExecutionError, UnsupportedConstruct
from p4reduce_switch.program.ir import externs
from p4reduce_switch.program.ir.program import Action, Apply, Program, Table
from p4reduce_switch.program.python.actions import Actions
from p4reduce_switch.program.python.checks import checked_index, nonzero, one_same, one_valid
from p4reduce_switch.program.python.checksums import Checksums
from p4reduce_switch.program.python.control import ControlWriter, functions_of
from p4reduce_switch.program.python.deparser import write_deparser
from p4reduce_switch.program.python.expressions import Expressions
from p4reduce_switch.program.python.parser import ParserWriter
from p4reduce_switch.program.python.source import Source
from p4reduce_switch.program.python.statements import Statements, StateNames
from p4reduce_switch.program.state.profiles import ActionProfile
from p4reduce_switch.program.state.stateful import Counter, Meter, Register
from p4reduce_switch.program.state.tables import Binding, Entry, KeyField
from p4reduce_switch.program.state.tables import Table as TableState
from p4reduce_switch.program.state.value_sets import ValueSet
from p4reduce_switch.program.traffic import Stages


@dataclass(frozen=True)
class Module:
    """The generated functions, their source, and the state they share."""

    stages: Stages
    source: str
    tables: dict[str, TableState]
    counters: dict[str, Counter]
    registers: dict[str, Register]
    meters: dict[str, Meter]
    action_profiles: dict[str, ActionProfile]
    value_sets: dict[str, ValueSet]


def compile_program(program: Program, log: Callable[[str, tuple[int, ...]], None], numbers: random.Random) -> Module:
    """Write and compile everything; `log` takes the program's messages, `numbers` are its dice."""
    try:
        return _compile(program, log, numbers)
    except (RecursionError, SyntaxError, MemoryError) as error:
        raise UnsupportedConstruct(f"a program nested deeper than Python takes: {error}") from error


def _compile(program: Program, log: Callable[[str, tuple[int, ...]], None], numbers: random.Random) -> Module:
    source = Source()
    source.names.update(
        log=log,
        random=numbers,
        from_bytes=int.from_bytes,
        checked_index=checked_index,
        nonzero=nonzero,
        one_valid=one_valid,
        one_same=one_same,
        ExecutionError=ExecutionError,
    )
    names = StateNames()
    counters, registers, meters = _state(program, source, names)
    value_sets = {declared.name: ValueSet(declared.name, declared.widths) for declared in program.value_sets}
    for declared in program.value_sets:
        names.value_sets[declared] = source.bind("holds", value_sets[declared.name].holds)
    expressions = Expressions(source, names)
    checksums = Checksums(source, expressions)
    for calculation in program.calculations:
        names.calculations[calculation] = source.fresh("calculation")
        checksums.write_calculation(calculation, names.calculations[calculation])
    verified = [checksum for checksum in program.checksums if checksum.verify]
    updated = [checksum for checksum in program.checksums if checksum.update]
    checksums.write_verify(verified, "verify")
    checksums.write_update(updated, "update")
    statements = Statements(source, names, expressions)
    ParserWriter(source, expressions, statements, program.errors).write(program.parser, "parse")
    actions = Actions(source, names)
    profiles = {
        profile: ActionProfile(profile.name, profile.max_size, profile.selector is not None)
        for profile in program.action_profiles
    }
    tables = {table: _table(table, profiles) for table in program.tables}
    functions = {table: functions_of(table, actions) for table in program.tables}
    for control, name in ((program.ingress, "ingress"), (program.egress, "egress")):
        ControlWriter(source, expressions, actions, tables).write(control, name)
    write_deparser(source, program.deparser, "deparse")

    namespace, text = source.execute()
    for control in (program.ingress, program.egress):
        for node in control.nodes:
            if isinstance(node, Apply) and functions[node.table]:
                _connect(node, tables[node.table], functions[node.table], namespace)
    stages = Stages(
        parse=namespace["parse"],
        verify=namespace["verify"] if verified else None,
        ingress=namespace["ingress"],
        egress=namespace["egress"],
        update=namespace["update"] if updated else None,
        deparse=namespace["deparse"],
    )
    named = {table.name: state for table, state in tables.items()}
    named_profiles = {profile.name: state for profile, state in profiles.items()}
    return Module(stages, text, named, counters, registers, meters, named_profiles, value_sets)


def _state(
    program: Program, source: Source, names: StateNames
) -> tuple[dict[str, Counter], dict[str, Register], dict[str, Meter]]:
    counters, registers, meters = {}, {}, {}
    for counter in program.counters:
        cells = counters[counter.name] = Counter(counter.name, counter.size)
        packets, bytes_ = source.bind("packets", cells.packet_counts), source.bind("bytes", cells.byte_counts)
        names.counters[counter] = (packets, bytes_)
    for register in program.registers:
        array = registers[register.name] = Register(register.name, register.size, register.bitwidth)
        names.registers[register] = source.bind("register", array.cells)
    for meter in program.meters:
        buckets = meters[meter.name] = Meter(meter.name, meter.size, meter.unit)
        names.meters[meter] = source.bind("meter", buckets)
    return counters, registers, meters


def _table(table: Table, profiles: Mapping[externs.ActionProfile, ActionProfile]) -> TableState:
    default = table.default
    return TableState(
        table.name,
        keys=[KeyField(key.name, key.kind, key.bits) for key in table.keys],
        max_size=table.max_size,
        action_params={action.name: list(action.parameters) for action in table.actions},
        default_action=None if default is None else (default[0].name, default[1]),
        default_is_const=table.default_is_const,
        has_direct_counter=table.has_direct_counter,
        direct_meter_unit=None if table.direct_meter is None else table.direct_meter.unit,
        supports_timeout=table.supports_timeout,
        profile=None if table.profile is None else profiles[table.profile],
    )


def _connect(node: Apply, state: TableState, functions: dict[Action, str], namespace: dict[str, Any]) -> None:
    """Hand the generated functions to a table; what follows a lookup is a number among the node's successors."""
    numbers = {target: number for number, target in enumerate(node.successors)}
    bindings = {
        action.name: Binding(namespace[functions[action]], numbers[hit], numbers[miss])
        for action, hit, miss in zip(node.table.actions, node.next_on_hit, node.next_on_miss, strict=True)
    }
    entries = [
        Entry(entry.match, entry.priority, entry.action.name, entry.arguments, const=True)
        for entry in node.table.entries
    ]
    state.bind(bindings, entries, numbers.get(node.next_without_member, 0))

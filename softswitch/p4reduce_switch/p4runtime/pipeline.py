"""A loaded program together with its P4Info: the names and ids of one matched to the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from p4reduce_contracts.p4runtime.errors import SchemaError
from p4reduce_contracts.p4runtime.schema import CounterInfo, FieldInfo, Schema, TableInfo
from p4reduce_switch.p4runtime.packets import PacketHeader
from p4reduce_switch.p4runtime.status import Code, Refused, invalid
from p4reduce_switch.program import (
    DEFAULT_EXECUTOR,
    CounterState,
    Executor,
    ProgramError,
    TableState,
    UnsupportedConstruct,
)
from p4reduce_switch.program import load as load_program

Identity = tuple[tuple[Any, ...], int]
"""What names an entry in a table: the match tuple of the executor and the priority."""


class BoundTable:
    """A table of the program and what P4Info says about it. `keys` is in the executor's order.

    p4c writes optional keys into the BMv2 JSON as ternary ones; `to_executor` and `from_executor` go between the two.
    """

    def __init__(self, info: TableInfo, table: TableState) -> None:
        self.info = info
        self.table = table
        self.keys = _key_order(info, table)
        self.key_ids = {key.id for key in info.keys}
        self._as_ternary = tuple(
            key.kind == "optional" and stored.match_type == "ternary"
            for key, stored in zip(self.keys, table.keys, strict=True)
        )
        self.metadata: dict[Identity | None, tuple[int, bytes]] = {}
        """Opaque (controller_metadata, metadata) of entries that have any; None stands for the default entry."""

    def to_executor(self, values: Iterable[Any]) -> tuple[Any, ...]:
        """Match values of P4Info's kinds in the executor's kinds."""
        return tuple(
            value if not ternary else (0, 0) if value is None else (value, (1 << key.bitwidth) - 1)
            for key, value, ternary in zip(self.keys, values, self._as_ternary, strict=True)
        )

    def from_executor(self, match: Iterable[Any]) -> Iterator[tuple[FieldInfo, Any]]:
        """Each key with its value in P4Info's kind; None for an optional key that matches all."""
        for key, value, ternary in zip(self.keys, match, self._as_ternary, strict=True):
            yield key, value if not ternary else value[0] if value[1] else None


@dataclass(frozen=True)
class Pipeline:
    """What SetForwardingPipelineConfig made: the executor and the tables that requests refer to by id."""

    config: Any
    schema: Schema
    program: Executor
    tables: dict[int, BoundTable]
    counters: dict[int, tuple[CounterInfo, CounterState]]
    packet_in: PacketHeader | None
    packet_out: PacketHeader | None

    def table(self, id: int) -> BoundTable:
        """By P4Info id; INVALID_ARGUMENT when there is none."""
        if id not in self.tables:
            invalid(f"the program has no table with id {id}")
        return self.tables[id]


def load(config: Any, executor: str = DEFAULT_EXECUTOR) -> Pipeline:
    """Loads a ForwardingPipelineConfig into an executor; INVALID_ARGUMENT when it is missing or cannot be realized."""
    if not config.HasField("p4info") or not config.p4_device_config:
        invalid("the config needs both a p4info and a p4_device_config (the JSON of p4c-bm2-ss)")
    try:
        schema = Schema.from_p4info(config.p4info)
        program = load_program(config.p4_device_config, executor)
    except SchemaError as error:
        invalid(f"p4info: {error}")
    except UnsupportedConstruct as error:
        invalid(f"the program uses a construct that is not supported: {error}")
    except ProgramError as error:
        invalid(f"p4_device_config: {error}")
    return bind(config, schema, program)


def bind(config: Any, schema: Schema, program: Executor) -> Pipeline:
    """Matches P4Info to program by name; INVALID_ARGUMENT when they are not of one program."""
    tables: dict[int, BoundTable] = {}
    for info in schema.tables:
        if info.name not in program.tables:
            invalid(f"p4info and program do not belong together: the program has no table {info.name}")
        tables[info.id] = BoundTable(info, program.tables[info.name])
        for action_id in info.action_ids:
            name = schema.actions.by_id[action_id].name
            if name not in program.tables[info.name].action_params:
                invalid(f"p4info and program do not belong together: table {info.name} has no action {name}")
    counters: dict[int, tuple[CounterInfo, CounterState]] = {}
    for counter in schema.counters:
        if counter.name not in program.counters:
            invalid(f"p4info and program do not belong together: the program has no counter {counter.name}")
        counters[counter.id] = (counter, program.counters[counter.name])
    try:
        packet_in = PacketHeader.of(schema.packet_in)
        packet_out = PacketHeader.of(schema.packet_out)
    except ValueError as error:
        raise Refused(Code.INVALID_ARGUMENT, f"p4info: {error}") from error
    return Pipeline(config, schema, program, tables, counters, packet_in, packet_out)


def _key_order(info: TableInfo, table: TableState) -> tuple[FieldInfo, ...]:
    """P4Info's keys in the executor's order: by name, or by place when a name is annotated in only one of them."""
    names = [key.name for key in table.keys]
    by_name = {key.name: key for key in info.keys}
    ordered = tuple(by_name[name] for name in names) if set(names) == set(by_name) else info.keys
    for key, stored in zip(ordered, table.keys, strict=False):
        same_kind = key.kind == stored.match_type or (key.kind, stored.match_type) == ("optional", "ternary")
        if not same_kind or key.bitwidth != stored.bitwidth:
            invalid(f"p4info and program do not belong together: key {key.name} of table {info.name} differs")
    if len(ordered) != len(table.keys):
        invalid(f"p4info and program do not belong together: the keys of table {info.name} differ")
    return ordered

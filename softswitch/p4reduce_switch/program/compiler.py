"""From a BMv2 JSON to the functions that execute it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .actions import Actions
from .checksums import Checksums
from .control import ControlCompiler, TablePlan
from .deparser import write_deparser
from .errors import ExecutionError, InvalidProgram, UnsupportedConstruct
from .expressions import Expressions
from .layout import Layout
from .parser import ParserCompiler
from .primitives import Primitives, Resources
from .references import checked_index, nonzero
from .source import Source
from .stateful import Counter, Meter, Register
from .tables import Table

Json = dict[str, Any]
Fields = list[Any]

CORE_ERRORS = (
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
)


@dataclass
class Compiled:
    """What the traffic manager needs: functions over a packet's fields, and the state they share."""

    layout: Layout
    parse: Callable[[Fields, bytes], int]
    verify: Callable[[Fields], None] | None
    ingress: Callable[[Fields], None]
    egress: Callable[[Fields], None]
    update: Callable[[Fields], None] | None
    deparse: Callable[[Fields], bytes]
    errors: dict[str, int]
    source: str
    tables: dict[str, Table] = field(default_factory=dict)
    counters: dict[str, Counter] = field(default_factory=dict)
    registers: dict[str, Register] = field(default_factory=dict)
    meters: dict[str, Meter] = field(default_factory=dict)
    digests: dict[int, tuple[str, list[tuple[int, int]]]] = field(default_factory=dict)  # (slot, mask) each
    field_lists: dict[int, list[int]] = field(default_factory=dict)  # slots


def compile_program(config: Json, runtime: dict[str, Any]) -> Compiled:
    """Compile a parsed BMv2 JSON. `runtime` are the functions `log` and `random` of the program."""
    try:
        return _compile(config, runtime)
    except (RecursionError, SyntaxError, MemoryError) as error:  # what Python says to endless nesting
        raise UnsupportedConstruct(
            f"statements or expressions nested deeper than Python can: {error}"
        ) from error
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InvalidProgram(f"this is not a BMv2 JSON of a v1model program: {error!r}") from error


def _compile(config: Json, runtime: dict[str, Any]) -> Compiled:
    _refuse_unsupported(config)
    layout = Layout(config)
    source = Source()
    source.names.update(
        runtime,
        from_bytes=int.from_bytes,
        checked_index=checked_index,
        nonzero=nonzero,
        ExecutionError=ExecutionError,
    )
    counters, registers, meters = _state(config)
    resources = _resources(source, counters, registers, meters)
    expressions = Expressions(layout, resources.registers)
    errors = _errors(config)

    checksums = Checksums(source, layout, expressions)
    for calculation in config["calculations"]:
        resources.calculations[calculation["name"]] = checksums.calculation(calculation)
    verifies = checksums.check_all("verify", config["checksums"], resources.calculations, True)
    updates = checksums.check_all("update", config["checksums"], resources.calculations, False)
    primitives = Primitives(source, layout, expressions, resources)
    ParserCompiler(source, layout, expressions, primitives, errors).compile(
        _named(config, "parsers", "parser"), "parse"
    )
    actions = Actions(source, layout, resources, config["actions"])
    direct_meters = {m["name"]: m for m in config["meter_arrays"] if m.get("is_direct")}
    plans: dict[str, TablePlan] = {}
    nested: list[list[str]] = []
    for pipeline in ("ingress", "egress"):
        control = ControlCompiler(source, layout, expressions, actions, direct_meters)
        control.compile(_named(config, "pipelines", pipeline), pipeline)
        plans |= control.plans
        nested += control.nested
    deparser = _named(config, "deparsers", "deparser")
    if deparser.get("primitives"):
        raise UnsupportedConstruct("statements in the deparser")
    write_deparser(source, layout, deparser["order"], "deparse")

    module = source.execute(nested, f"<{config.get('program', 'P4 program')}>")
    for plan in plans.values():
        plan.connect(module)
    return Compiled(
        layout,
        module["parse"],
        module["verify"] if verifies else None,
        module["ingress"],
        module["egress"],
        module["update"] if updates else None,
        module["deparse"],
        errors,
        module["__source__"],
        {name: plan.table for name, plan in plans.items()},
        counters,
        registers,
        meters,
        _digests(config, layout),
        _field_lists(config, layout),
    )


def _refuse_unsupported(config: Json) -> None:
    version = config.get("__meta__", {}).get("version", [2, 0])
    if version[0] != 2:
        raise UnsupportedConstruct(f"BMv2 JSON of version {version[0]}, only version 2 is known")
    for instance in config.get("extern_instances", []):
        raise UnsupportedConstruct(f"extern {instance['name']} of type {instance['type']}")
    for kind in ("parsers", "deparsers"):
        if len(config[kind]) > 1:
            raise UnsupportedConstruct(f"more than one of {kind}")


def _named(config: Json, kind: str, name: str) -> Json:
    for item in config[kind]:
        if item["name"] == name:
            return dict(item)
    raise InvalidProgram(f"there is no {name} among the {kind}")


def _state(config: Json) -> tuple[dict[str, Counter], dict[str, Register], dict[str, Meter]]:
    counters = {
        c["name"]: Counter(c["name"], int(c["size"]))
        for c in config["counter_arrays"]
        if not c.get("is_direct")
    }
    registers = {
        r["name"]: Register(r["name"], int(r["size"]), int(r["bitwidth"])) for r in config["register_arrays"]
    }
    meters = {}
    for item in config["meter_arrays"]:
        if int(item.get("rate_count", 2)) != 2:
            raise UnsupportedConstruct(f"meter {item['name']} with {item['rate_count']} rates")
        if not item.get("is_direct"):
            meters[item["name"]] = Meter(item["name"], int(item["size"]), item["type"])
    return counters, registers, meters


def _resources(
    source: Source, counters: dict[str, Counter], registers: dict[str, Register], meters: dict[str, Meter]
) -> Resources:
    resources = Resources()
    for name, counter in counters.items():
        packets, bytes_ = (
            source.bind("packets", counter.packet_counts),
            source.bind("bytes", counter.byte_counts),
        )
        resources.counters[name] = (packets, bytes_, counter.size)
    for name, register in registers.items():
        resources.registers[name] = (
            source.bind("register", register.cells),
            register.size,
            register.bitwidth,
        )
    for name, meter in meters.items():
        resources.meters[name] = (source.bind("meter", meter), meter.size)
    return resources


def _errors(config: Json) -> dict[str, int]:
    """Numbers of the parser errors; core errors that the program does not number come after the others."""
    errors = {name: int(code) for name, code in config.get("errors", [])}
    for name in CORE_ERRORS:
        if name not in errors:
            errors[name] = (
                0 if name == "NoError" and 0 not in errors.values() else max([0, *errors.values()]) + 1
            )
    return errors


def _digests(config: Json, layout: Layout) -> dict[int, tuple[str, list[tuple[int, int]]]]:
    digests = {}
    for item in config.get("learn_lists", []):
        columns = []
        for element in item["elements"]:
            if element["type"] != "field":
                raise UnsupportedConstruct(f"{element['type']} in digest {item['name']}")
            slot, width = _slot(layout, element["value"])
            columns.append((slot, (1 << width) - 1))
        digests[int(item["id"])] = (item["name"], columns)
    return digests


def _field_lists(config: Json, layout: Layout) -> dict[int, list[int]]:
    lists = {}
    for item in config.get("field_lists", []):
        for element in item["elements"]:
            if element["type"] != "field":
                raise UnsupportedConstruct(f"{element['type']} in field list {item['name']}")
        lists[int(item["id"])] = [_slot(layout, element["value"])[0] for element in item["elements"]]
    return lists


def _slot(layout: Layout, reference: list[str]) -> tuple[int, int]:
    """(slot, width) of a field or of a header's validity."""
    header = layout.header(reference[0])
    if reference[1] == "$valid$":
        return header.valid, 1
    kind = header.type.field(reference[1])
    if kind.varbit:
        raise UnsupportedConstruct(f"varbit field {'.'.join(reference)} in a digest or field list")
    layout.used.add(header.base + kind.offset)
    return header.base + kind.offset, kind.width

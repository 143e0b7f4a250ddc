"""Loads the JSON that p4c-bm2-ss writes into the IR, and validates all of it.

| file | what |
| --- | --- |
| `reader.py` | typed access to the JSON, with the path of an invalid value; limits of a program |
| `layout.py` | slots of headers, and of the standard metadata |
| `expressions.py`, `statements.py` | expressions, primitives, actions |
| `parser.py`, `control.py` | parser and control graphs |
| `externs.py` | counters, registers, meters, hashes, checksums, action profiles, digests, field lists |
"""

from __future__ import annotations

from typing import Any

from p4reduce_switch.program.errors import InvalidProgramError, UnsupportedConstructError
from p4reduce_switch.program.ir.places import Header
from p4reduce_switch.program.ir.program import ParserErrors, Program, TargetOptions
from p4reduce_switch.program.load.control import Known, load_control
from p4reduce_switch.program.load.expressions import Expressions
from p4reduce_switch.program.load.externs import (
    load_action_profiles,
    load_calculations,
    load_checksums,
    load_digests,
    load_externs,
    load_field_lists,
)
from p4reduce_switch.program.load.layout import Layout, check_bytes, standard_metadata
from p4reduce_switch.program.load.parser import load_parser
from p4reduce_switch.program.load.reader import Place, parse
from p4reduce_switch.program.load.statements import Statements, load_actions

CORE_ERRORS = (
    "NoError",
    "PacketTooShort",
    "NoMatch",
    "StackOutOfBounds",
    "HeaderTooShort",
    "ParserTimeout",
    "ParserInvalidArgument",
)
MAX_ERROR = 1 << 30
DEFAULT_TARGET = TargetOptions()


def load_program(config: bytes | str | dict[str, Any], target: TargetOptions = DEFAULT_TARGET) -> Program:
    """Return the IR of a BMv2 JSON.

    UnsupportedConstructError names a construct of the program that is not implemented; InvalidProgramError names the
    place in the JSON that is malformed.
    """
    try:
        return _load(parse(config), target)
    except (RecursionError, MemoryError) as error:
        raise UnsupportedConstructError("a program that is larger than there is memory for") from error


def _load(config: Place, target: TargetOptions) -> Program:
    _refuse_unsupported(config)
    layout = Layout(config, target)
    externs = load_externs(config, layout)
    externs.calculations = load_calculations(config, layout)
    externs.action_profiles = load_action_profiles(config, layout)
    expressions = Expressions(layout, externs.registers)
    checksums = load_checksums(config, layout, expressions, externs.calculations)
    statements = Statements(layout, expressions, externs)
    parser, value_sets = load_parser(
        _named(config, "parsers", "parser"), config.rows("parse_vsets"), layout, expressions, statements
    )
    actions = load_actions(config, layout, externs)
    known = Known(layout, expressions, actions, externs)
    controls = [load_control(_named(config, "pipelines", name), known) for name in ("ingress", "egress")]
    profiles = tuple(externs.action_profiles.values())
    selectors = [profile.selector for profile in profiles if profile.selector is not None]
    return Program(
        slots=layout.size,
        headers=tuple(layout.headers.values()),
        standard=standard_metadata(layout),
        errors=_errors(config),
        counters=tuple(externs.counters.values()),
        registers=tuple(externs.registers.values()),
        meters=tuple(externs.meters.values()),
        calculations=(*externs.calculations.values(), *selectors),
        action_profiles=profiles,
        value_sets=value_sets,
        checksums=checksums,
        actions=tuple(actions.values()),
        parser=parser,
        ingress=controls[0],
        egress=controls[1],
        deparser=_deparser(config, layout),
        digests=load_digests(config, layout),
        field_lists=load_field_lists(config, layout),
        target=target,
    )


def _refuse_unsupported(config: Place) -> None:
    meta = config.get("__meta__")
    version = None if meta is None else meta.get("version")
    if version is not None:
        numbers = [number.integer() for number in version.elements()]
        if numbers and numbers[0] != 2:
            raise UnsupportedConstructError(f"BMv2 JSON of version {numbers[0]}, only version 2 is known")
    for instance in config.rows("extern_instances"):
        raise UnsupportedConstructError(f"extern {instance['name'].name()} of type {instance['type'].name()}")
    for kind in ("parsers", "deparsers"):
        if len(config[kind].elements()) > 1:
            raise UnsupportedConstructError(f"more than one of {kind}")


def _named(config: Place, kind: str, name: str) -> Place:
    for item in config[kind].elements():
        if item["name"].text() == name:
            return item
    raise InvalidProgramError(f"there is no {name} among the {kind}")


def _errors(config: Place) -> ParserErrors:
    """Return the numbers of the parser errors; core errors without a number in the program come after the others."""
    codes: dict[str, int] = {}
    for item in config.rows("errors"):
        name, code = item.pair()
        codes[name.text()] = code.integer(0, MAX_ERROR)
    for core in CORE_ERRORS:
        if core not in codes:
            first = core == "NoError" and 0 not in codes.values()
            codes[core] = 0 if first else max([0, *codes.values()]) + 1
    return ParserErrors(
        no_error=codes["NoError"],
        packet_too_short=codes["PacketTooShort"],
        stack_out_of_bounds=codes["StackOutOfBounds"],
        header_too_short=codes["HeaderTooShort"],
        parser_invalid_argument=codes["ParserInvalidArgument"],
        names={code: name for name, code in codes.items()},
    )


def _deparser(config: Place, layout: Layout) -> tuple[Header, ...]:
    deparser = _named(config, "deparsers", "deparser")
    if deparser.rows("primitives"):
        raise UnsupportedConstructError("statements in the deparser")
    headers = []
    for place in deparser["order"].elements():
        header = layout.header(place)
        if header.metadata:
            place.fail("metadata in the deparser")
        check_bytes(header.type)
        headers.append(header)
    return tuple(headers)

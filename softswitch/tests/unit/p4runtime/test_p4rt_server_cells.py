"""Registers and parser value sets through P4Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import text_format

from conformance.case import PROGRAMS
from p4reduce_runtime.p4.config.v1 import p4info_pb2 as p4i
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.schema import Schema, parse_p4info
from rigs.entity_text import entity, exact, octets
from rigs.limits import LIMIT_S
from rigs.p4rt import DEVICE_CONFIG, P4INFO, SCHEMA, Raw, Served, code_of, config

SETS_P4INFO = parse_p4info((PROGRAMS / "value_set.p4info.txtpb").read_text())
SETS = Schema.from_p4info(SETS_P4INFO)
MEMORY = "SampleIngress.memory"


def cell(index: int | None = None, value: int | None = None, field: str = "bitstring") -> Any:
    at = "" if index is None else f"index {{ index: {index} }}"
    data = "" if value is None else f"data {{ {field}: {octets(value)} }}"
    return entity(SCHEMA, f"register_entry {{ register_id: @{MEMORY} {at} {data} }}")


# ---- registers


def test_registers_are_written_and_read(raw: Raw, switch: Served) -> None:
    switch.switch.receive(1, bytes(6) + b"\x01\x02\x03\x04" + bytes(6))
    assert raw.read(cell()) == [cell(i, 0x01020304 * (i == 0)) for i in range(4)]
    assert raw.write(("MODIFY", cell(2, 0xFFFFFFFF))) == ["OK"]
    assert raw.read(cell(2)) == [cell(2, 0xFFFFFFFF)]
    assert raw.write(("MODIFY", cell(None, 7))) == ["OK"], "no index: all of them"
    every = p4r.Entity()
    every.register_entry.SetInParent()
    assert raw.read(every) == [cell(i, 7) for i in range(4)]


def test_invalid_register_entries_are_refused(raw: Raw) -> None:
    unknown, wide, empty, other = (cell(0, 1) for _ in range(4))
    unknown.register_entry.register_id = 99
    wide.register_entry.data.bitstring = b"\x01\0\0\0\0"
    empty.register_entry.ClearField("data")
    other.register_entry.data.bool = True
    updates = [("MODIFY", cell(4, 1)), ("MODIFY", cell(-1, 1)), ("INSERT", cell(0, 1)), ("DELETE", cell(0, 1))]
    updates += [("MODIFY", bad) for bad in (unknown, wide, empty, other)]
    assert raw.write(*updates) == ["OUT_OF_RANGE", *["INVALID_ARGUMENT"] * 7]
    assert code_of(raw.read, cell(4)) == "OUT_OF_RANGE"
    assert code_of(raw.read, unknown) == "INVALID_ARGUMENT"
    assert raw.read(cell(0)) == [cell(0, 0)]


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ("bitstring { int { bitwidth: 32 } }", "bitstring"),
        ("bitstring { bit { bitwidth: 32 } }", "bitstring"),
        ('serializable_enum { name: "kind_t" }', "enum_value"),
        ('new_type { name: "number_t" }', "bitstring"),
    ],
)
def test_register_cells_of_other_types_are_written_and_read(raw: Raw, spec: str, field: str) -> None:
    p4info = p4i.P4Info.FromString(P4INFO.SerializeToString())
    p4info.registers[0].ClearField("type_spec")
    text_format.Merge(spec, p4info.registers[0].type_spec)
    p4info.type_info.serializable_enums["kind_t"].underlying_type.bitwidth = 32
    p4info.type_info.new_types["number_t"].original_type.bitstring.int.bitwidth = 32
    raw.set_config(config=config(DEVICE_CONFIG, p4info=p4info))
    for value in (0, 5, (1 << 32) - 1):
        assert raw.write(("MODIFY", cell(1, value, field))) == ["OK"]
        assert raw.read(cell(1)) == [cell(1, value, field)]


def test_a_register_of_structs_is_not_shown(raw: Raw) -> None:
    p4info = p4i.P4Info.FromString(P4INFO.SerializeToString())
    p4info.registers[0].type_spec.struct.name = "some_t"
    raw.set_config(config=config(DEVICE_CONFIG, p4info=p4info))
    assert raw.write(("MODIFY", cell(0, 1))) == ["UNIMPLEMENTED"]
    assert code_of(raw.read, cell()) == "UNIMPLEMENTED"
    every = p4r.Entity()
    every.register_entry.SetInParent()
    assert raw.read(every) == []
    p4info.registers[0].type_spec.bitstring.bit.bitwidth = 31
    assert code_of(raw.set_config, config=config(DEVICE_CONFIG, p4info=p4info)) == "INVALID_ARGUMENT"


# ---- value sets


@pytest.fixture
def parsing(switch: Served) -> Iterator[Raw]:
    """Primary, with the program of value sets committed."""
    with Raw(switch.address) as one:
        assert one.arbitrate().status.code == 0
        one.set_config(config=config((PROGRAMS / "value_set.json").read_bytes(), p4info=SETS_P4INFO))
        yield one


def members(*rows: int | str, name: str = "Parse.kinds") -> Any:
    """A value set's members: a number for the key of `Parse.kinds`, or text."""
    keys = [exact(row) if isinstance(row, int) else row for row in rows]
    text = " ".join(f"members {{ {key} }}" for key in keys)
    return entity(SETS, f"value_set_entry {{ value_set_id: @{name} {text} }}")


def test_value_sets_are_written_and_read(parsing: Raw, switch: Served) -> None:
    others = (
        f"match {{ field_id: 2 ternary {{ value: {octets(0x1200)} mask: {octets(0xFF00)} }} }}"
        f"match {{ field_id: 3 range {{ low: {octets(3)} high: {octets(9)} }} }}"
        f"match {{ field_id: 4 lpm {{ value: {octets(1 << 71)} prefix_len: 1 }} }}"
    )
    kinds, pairs = members(7, 9), members(exact(5) + others, name="Parse.pairs")
    assert parsing.write(("MODIFY", kinds), ("MODIFY", pairs)) == ["OK", "OK"]
    assert parsing.read(members()) == [kinds]
    assert parsing.read(p4r.Entity(value_set_entry={})) == [kinds, pairs]
    switch.switch.receive(1, bytes((5, 0x12, 0x99, 4, 0xFF, *bytes(9))))
    assert switch.ports.sent.get(timeout=LIMIT_S)[1][-1] == 0x80
    assert parsing.write(("MODIFY", members(8))) == ["OK"]
    assert parsing.read(members()) == [members(8)], "all members at once"
    parsing.set_config("RECONCILE_AND_COMMIT", config((PROGRAMS / "value_set.json").read_bytes(), p4info=SETS_P4INFO))
    assert parsing.read(members()) == [members(8)]
    assert parsing.write(("MODIFY", members())) == ["OK"]
    assert parsing.read(members()) == [members()]


def test_keys_that_match_all_are_left_out(parsing: Raw) -> None:
    pairs = members(5, name="Parse.pairs")
    assert parsing.write(("MODIFY", pairs)) == ["OK"]
    assert parsing.read(members(name="Parse.pairs")) == [pairs]


def test_invalid_value_set_entries_are_refused(parsing: Raw) -> None:
    unknown, unkeyed, twice, strange, wide = (members(1) for _ in range(5))
    unknown.value_set_entry.value_set_id = 99
    unkeyed.value_set_entry.members[0].ClearField("match")
    twice.value_set_entry.members[0].match.add().CopyFrom(twice.value_set_entry.members[0].match[0])
    strange.value_set_entry.members[0].match[0].field_id = 9
    wide.value_set_entry.members[0].match[0].exact.value = b"\x01\0"
    updates = [
        ("INSERT", members(1), "INVALID_ARGUMENT"),
        ("DELETE", members(1), "INVALID_ARGUMENT"),
        ("MODIFY", unknown, "INVALID_ARGUMENT"),
        ("MODIFY", unkeyed, "INVALID_ARGUMENT"),
        ("MODIFY", twice, "INVALID_ARGUMENT"),
        ("MODIFY", strange, "INVALID_ARGUMENT"),
        ("MODIFY", wide, "OUT_OF_RANGE"),
        ("MODIFY", members(1, 2, 1), "ALREADY_EXISTS"),
        ("MODIFY", members(1, 2, 3, 4, 5), "RESOURCE_EXHAUSTED"),
        ("MODIFY", members(1, 2, 3, 4), "OK"),
    ]
    got = parsing.write(*((operation, entity) for operation, entity, _ in updates))
    assert got == [wanted for _, _, wanted in updates]
    assert code_of(parsing.read, unknown) == "INVALID_ARGUMENT"


def test_a_p4info_whose_value_set_keys_differ_is_refused(parsing: Raw) -> None:
    p4info = p4i.P4Info.FromString(SETS_P4INFO.SerializeToString())
    p4info.value_sets[0].match[0].bitwidth = 9
    given = config((PROGRAMS / "value_set.json").read_bytes(), p4info=p4info)
    assert code_of(parsing.set_config, config=given) == "INVALID_ARGUMENT"

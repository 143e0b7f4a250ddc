"""Registers and parser value sets through P4Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import text_format

from conformance.case import PROGRAMS
from p4reduce_contracts.p4.config.v1 import p4info_pb2 as p4i
from p4reduce_contracts.p4.v1 import p4data_pb2 as p4d
from p4reduce_contracts.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_contracts.p4runtime import codec
from p4reduce_contracts.p4runtime.entries import Entry, RegisterEntry, ValueSetEntry
from p4reduce_contracts.p4runtime.errors import SchemaError
from p4reduce_contracts.p4runtime.schema import RegisterInfo, Schema, parse_p4info
from rigs.p4rt import DEVICE_CONFIG, P4INFO, SCHEMA, Raw, Served, code_of, config

SETS_P4INFO = parse_p4info((PROGRAMS / "value_set.p4info.txtpb").read_text())
SETS = Schema.from_p4info(SETS_P4INFO)
MEMORY = "SampleIngress.memory"


def cell(index: int | None = None, value: int | None = None) -> Any:
    return codec.encode(SCHEMA, RegisterEntry(MEMORY, index, value))


def read(raw: Raw, query: Any, schema: Schema = SCHEMA) -> list[Entry]:
    return [codec.decode(schema, found) for found in raw.read(query)]


# ---- registers


def test_registers_are_written_and_read(raw: Raw, switch: Served) -> None:
    switch.switch.receive(1, bytes(6) + b"\x01\x02\x03\x04" + bytes(6))
    assert read(raw, cell()) == [RegisterEntry(MEMORY, i, 0x01020304 * (i == 0)) for i in range(4)]
    assert raw.write(("MODIFY", cell(2, 0xFFFFFFFF))) == ["OK"]
    assert read(raw, cell(2)) == [RegisterEntry(MEMORY, 2, 0xFFFFFFFF)]
    assert raw.write(("MODIFY", cell(None, 7))) == ["OK"], "no index: all of them"
    every = p4r.Entity()
    every.register_entry.SetInParent()
    assert read(raw, every) == [RegisterEntry(MEMORY, i, 7) for i in range(4)]


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
    assert read(raw, cell(0)) == [RegisterEntry(MEMORY, 0, 0)]


@pytest.mark.parametrize(
    ("spec", "values"),
    [
        ("bitstring { int { bitwidth: 32 } }", (-(1 << 31), -1, 0, (1 << 31) - 1)),
        ("bitstring { bit { bitwidth: 32 } }", (0, (1 << 32) - 1)),
        ('serializable_enum { name: "kind_t" }', (0, 3)),
        ('new_type { name: "number_t" }', (-5, 5)),
    ],
)
def test_register_cells_of_other_types_are_written_and_read(raw: Raw, spec: str, values: tuple[int, ...]) -> None:
    p4info = p4i.P4Info.FromString(P4INFO.SerializeToString())
    p4info.registers[0].ClearField("type_spec")
    text_format.Merge(spec, p4info.registers[0].type_spec)
    p4info.type_info.serializable_enums["kind_t"].underlying_type.bitwidth = 32
    p4info.type_info.new_types["number_t"].original_type.bitstring.int.bitwidth = 32
    raw.set_config(config=config(DEVICE_CONFIG, p4info=p4info))
    schema = Schema.from_p4info(p4info)
    for value in values:
        entry = RegisterEntry(MEMORY, 1, value)
        assert raw.write(("MODIFY", codec.encode(schema, entry))) == ["OK"]
        assert read(raw, codec.encode(schema, RegisterEntry(MEMORY, 1)), schema) == [entry]


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


def test_cells_in_p4data() -> None:
    flag = RegisterInfo(1, "flag", "flag", 1, "bool", 1)
    data = p4d.P4Data()
    codec.encode_cell(flag, 1, data)
    assert (data.bool, codec.decode_cell(flag, data)) == (True, 1)
    number = RegisterInfo(1, "number", "number", 1, "int", 8)
    for value in (128, -129):
        with pytest.raises(SchemaError, match="does not fit"):
            codec.encode_cell(number, value, data)
    with pytest.raises(SchemaError, match="type int"):
        codec.decode_cell(number, data)


# ---- value sets


@pytest.fixture
def parsing(switch: Served) -> Iterator[Raw]:
    """Primary, with the program of value sets committed."""
    with Raw(switch.address) as one:
        assert one.arbitrate().status.code == 0
        one.set_config(config=config((PROGRAMS / "value_set.json").read_bytes(), p4info=SETS_P4INFO))
        yield one


def members(*rows: Any, name: str = "Parse.kinds") -> Any:
    return codec.encode(SETS, ValueSetEntry(name, tuple(row if isinstance(row, tuple) else (row,) for row in rows)))


def test_value_sets_are_written_and_read(parsing: Raw, switch: Served) -> None:
    kinds, pairs = members(7, 9), members((5, (0x1200, 0xFF00), (3, 9), (1 << 71, 1)), name="Parse.pairs")
    assert parsing.write(("MODIFY", kinds), ("MODIFY", pairs)) == ["OK", "OK"]
    assert parsing.read(members()) == [kinds]
    assert parsing.read(p4r.Entity(value_set_entry={})) == [kinds, pairs]
    for kind, way in ((9, 3), (8, 0)):
        switch.switch.receive(1, bytes((kind, *bytes(13))))
        assert switch.ports.sent.get(timeout=10)[1][-1] == way
    switch.switch.receive(1, bytes((5, 0x12, 0x99, 4, 0xFF, *bytes(9))))
    assert switch.ports.sent.get(timeout=10)[1][-1] == 0x80
    assert parsing.write(("MODIFY", members(8))) == ["OK"]
    assert parsing.read(members()) == [members(8)], "all members at once"
    parsing.set_config("RECONCILE_AND_COMMIT", config((PROGRAMS / "value_set.json").read_bytes(), p4info=SETS_P4INFO))
    assert parsing.read(members()) == [members(8)]
    assert parsing.write(("MODIFY", members())) == ["OK"]
    assert parsing.read(members()) == [members()]


def test_keys_that_match_all_are_left_out(parsing: Raw) -> None:
    pairs = members((5, None, None, None), name="Parse.pairs")
    assert len(pairs.value_set_entry.members[0].match) == 1
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


@pytest.mark.parametrize(
    ("row", "message"), [((1, 1), "1 values"), ((256,), "does not fit"), (((1, 2),), "one integer")]
)
def test_the_client_refuses_invalid_value_set_members(row: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        members(row)

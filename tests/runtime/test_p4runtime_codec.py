"""Entries by name to P4Runtime entities and back, and the messages: what is checked in is made from the protos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from p4reduce_contracts.jobs import jobs_pb2
from p4reduce_runtime.p4.config.v1 import p4info_pb2, p4types_pb2
from p4reduce_runtime.p4.config.v1 import p4info_pb2 as p4i
from p4reduce_runtime.p4.v1 import p4data_pb2
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime import bytestrings, codec
from p4reduce_runtime.p4runtime.entries import (
    CounterEntry,
    DigestConfig,
    Entry,
    MeterConfig,
    MeterEntry,
    MulticastGroup,
    TableEntry,
)
from p4reduce_runtime.p4runtime.errors import SchemaError
from p4reduce_runtime.p4runtime.schema import Schema, parse_p4info
from p4reduce_switch.queues import queues_pb2
from rigs.p4rt import P4INFO, SCHEMA

I = "SampleIngress."  # noqa: E741
EXACT = {"h.sample.id": 5, "s.ingress_port": 511}
ENTRIES: list[Entry] = [
    TableEntry(I + "exact_table", EXACT, I + "forward", {"port": 0}),
    TableEntry(I + "exact_table", action=I + "flood", params={"group": 65535}, is_default=True),
    TableEntry(I + "prefix_table", {"h.sample.address": (0x0A000000, 8)}, I + "drop"),
    TableEntry(I + "prefix_table", {}, I + "drop"),
    TableEntry(
        I + "ternary_table",
        {"h.sample.kind": (0x10, 0xF0), "h.sample.level": (1, 2), "h.sample.vlan": 0},
        I + "drop",
        priority=2,
    ),
    CounterEntry(I + "seen", 3, 4, 5),
    MeterEntry(I + "pace", 3, MeterConfig(1, 2, 3, 4)),
    MeterEntry(I + "pace", 0, MeterConfig(0, 0, 0, 0)),
    MeterEntry(I + "pace", 2),
    MulticastGroup(1, ((1, 0), (2, 5))),
    DigestConfig("sighting_t", 1, 2, 3),
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: type(entry).__name__)
def test_entries_are_equal_after_encoding_and_decoding(entry: Entry) -> None:
    wire = codec.encode(SCHEMA, entry).SerializeToString()
    assert codec.decode(SCHEMA, p4r.Entity.FromString(wire)) == entry


def test_short_names_are_encoded_and_full_names_decoded() -> None:
    entry = TableEntry("exact_table", EXACT, "forward", {"port": 1})
    assert codec.decode(SCHEMA, codec.encode(SCHEMA, entry)) == TableEntry(
        I + "exact_table", EXACT, I + "forward", {"port": 1}
    )


@pytest.mark.parametrize(
    ("table", "match"),
    [
        ("prefix_table", {"h.sample.address": (5, 0)}),
        ("ternary_table", {"h.sample.kind": (5, 0), "h.sample.level": (0, 255)}),
    ],
)
def test_fields_that_match_everything_are_left_out(table: str, match: Any) -> None:
    assert len(codec.encode(SCHEMA, TableEntry(table, match)).table_entry.match) == 0


def test_bits_outside_the_mask_are_cleared() -> None:
    match: Any = {"h.sample.address": (0x0A0B0C0D, 8)}
    assert codec.encode(SCHEMA, TableEntry("prefix_table", match)).table_entry.match[0].lpm.value == b"\x0a\0\0\0"
    match = {"h.sample.kind": (0x1F, 0xF0)}
    assert codec.encode(SCHEMA, TableEntry("ternary_table", match)).table_entry.match[0].ternary.value == b"\0\x10"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (TableEntry("no_table"), "no table 'no_table'; it has: .*exact_table"),
        (MeterEntry("no_meter"), "no meter 'no_meter'; it has: .*pace"),
        (MeterEntry("pace", 0, MeterConfig(1 << 63, 0, 0, 0)), "cir 9223372036854775808 of a meter is not a whole"),
        (TableEntry("exact_table", {"h.sample.id": 5}), "s.ingress_port is missing"),
        (TableEntry("exact_table", {**EXACT, "x": 1}), "no key"),
        (TableEntry("exact_table", {**EXACT, "s.ingress_port": 512}), "512 does not fit 9 bits"),
        (TableEntry("exact_table", {**EXACT, "s.ingress_port": (1, 1)}), "one integer"),
        (TableEntry("prefix_table", {"h.sample.address": 5}), "a pair"),
        (TableEntry("prefix_table", {"h.sample.address": (5, 33)}), "prefix length 33"),
        (TableEntry("ternary_table", {"h.sample.level": (2, 1)}), "empty"),
        (TableEntry("exact_table", EXACT, "no_action"), "no action 'no_action'"),
        (TableEntry("prefix_table", {}, "flood", {"group": 1}), "has no action .*flood"),
        (TableEntry("exact_table", EXACT, "forward"), r"takes \(port\), not \(\)"),
        (TableEntry("exact_table", EXACT, "forward", {"port": 512}), "action .*forward: port"),
        (CounterEntry("no_counter", 0), "no counter"),
        (DigestConfig("no_digest"), "no digest"),
        ("entry", "str is not an entry"),
    ],
)
def test_the_error_names_what_does_not_fit_the_program(entry: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        codec.encode(SCHEMA, entry)


@pytest.mark.parametrize("kind", ["extern_entry", "packet_replication_engine_entry", "register_entry"])
def test_other_kinds_of_entities_are_refused(kind: str) -> None:
    entity = p4r.Entity()
    getattr(entity, kind).SetInParent()
    with pytest.raises(SchemaError, match=kind):
        codec.decode(SCHEMA, entity)


@pytest.mark.parametrize(("field", "value"), [("type", "SINGLE_RATE_TWO_COLOR"), ("unit", "UNSPECIFIED")])
def test_meters_of_other_types_are_refused(field: str, value: str) -> None:
    p4info = p4i.P4Info()
    p4info.CopyFrom(P4INFO)
    setattr(p4info.meters[0].spec, field, p4i.MeterSpec.DESCRIPTOR.enum_values_by_name[value].number)
    with pytest.raises(SchemaError, match="pace does not have two rates and a unit"):
        Schema.from_p4info(p4info)


def test_half_a_surrogate_pair_in_a_p4info_is_refused() -> None:
    with pytest.raises(SchemaError, match="not a P4Info in text form: .*surrogates not allowed"):
        Schema.from_p4info("tables { match_fields { match_type: \udcdeEXACT } }")


def test_an_entry_that_refers_to_a_member_is_refused() -> None:
    entity = codec.encode(SCHEMA, TableEntry(I + "exact_table", EXACT))
    entity.table_entry.action.action_profile_member_id = 1
    with pytest.raises(SchemaError, match="exact_table: an entry with an action_profile_member_id is not supported"):
        codec.decode(SCHEMA, entity)


def test_a_parameter_that_the_action_does_not_have_is_refused() -> None:
    entity = codec.encode(SCHEMA, TableEntry(I + "exact_table", EXACT, I + "forward", {"port": 1}))
    entity.table_entry.action.action.params[0].param_id = 9
    with pytest.raises(SchemaError, match="forward has no parameter with id 9"):
        codec.decode(SCHEMA, entity)


ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("root", "module"),
    [
        ("contracts", jobs_pb2),
        ("softswitch", queues_pb2),
        ("runtime/p4reduce_runtime", p4types_pb2),
        ("runtime/p4reduce_runtime", p4info_pb2),
        ("runtime/p4reduce_runtime", p4data_pb2),
        ("runtime/p4reduce_runtime", p4r),
    ],
    ids=lambda value: getattr(value, "__name__", "").rpartition(".")[2],
)
def test_the_generated_code_is_that_of_the_proto_file(root: str, module: object, tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    google = next(str(Path(path).parents[1]) for path in __import__("google.rpc").rpc.__path__)
    out = tmp_path / "descriptors"
    name = module.DESCRIPTOR.name  # type: ignore[attr-defined]
    own = Path(protoc.__file__).parent / "_proto"  # protobuf's own files
    folders = [f"-I{folder}" for folder in (ROOT / root, google, own)]
    assert protoc.main(["protoc", *folders, f"--descriptor_set_out={out}", name]) == 0
    compiled = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]
    checked_in = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(checked_in)  # type: ignore[attr-defined]
    for message in [*compiled.message_type, *checked_in.message_type]:
        _clear_json_names(message)
    assert checked_in == compiled


def _clear_json_names(message: descriptor_pb2.DescriptorProto) -> None:
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        _clear_json_names(nested)


def test_text_that_is_no_p4info_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="not a P4Info"):
        parse_p4info("pkg_info { nonsense: 1 }")


@pytest.mark.parametrize(
    ("value", "bitwidth", "data"), [(0, 9, b"\0"), (255, 9, b"\xff"), (256, 9, b"\1\0"), (1, 48, b"\1")]
)
def test_byte_strings_are_as_short_as_possible(value: int, bitwidth: int, data: bytes) -> None:
    assert bytestrings.encode(value, bitwidth) == data
    assert bytestrings.decode(b"\0\0" + data) == value


@pytest.mark.parametrize("value", [512, -1])
def test_values_that_do_not_fit_are_refused(value: int) -> None:
    with pytest.raises(ValueError, match="does not fit 9 bits"):
        bytestrings.encode(value, 9)

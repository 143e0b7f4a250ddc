"""Table entries through P4Runtime: what is stored, what is refused and with which code."""

from __future__ import annotations

from typing import Any

import pytest

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from rigs.p4rt import SCHEMA, Raw, Served, code_of, entry

EXACT = 'match {{ field_id: 1 exact {{ value: "{}" }} }} match {{ field_id: 2 exact {{ value: "{}" }} }}'
KIND = 'match { field_id: 1 ternary { value: "\\x10" mask: "\\xf0" } }'


def exact(id: str = "\\x05", at: str = "\\x02", action: str | None = "forward", **params: bytes) -> Any:
    if action == "forward" and not params:
        params = {"port": b"\x01"}
    return entry("exact_table", EXACT.format(id, at), action, **params)


def prefix(value: str, length: int, action: str = "drop") -> Any:
    return entry("prefix_table", f'match {{ field_id: 1 lpm {{ value: "{value}" prefix_len: {length} }} }}', action)


def ternary(match: str) -> Any:
    return entry("ternary_table", f"match {{ {match} }}", "drop", 1)


def test_written_entries_are_read_back(raw: Raw) -> None:
    others = (
        'match { field_id: 2 range { low: "\\x01" high: "\\x10" } } match { field_id: 3 optional { value: "\\x07" } }'
    )
    written = [
        exact(),
        prefix("\\x0a\\x00\\x00\\x00", 8),
        entry("prefix_table", "", "forward", port=b"\x09"),
        entry("ternary_table", KIND + others, "drop", 7),
        entry("ternary_table", "", "forward", 1, port=b"\x01\x00"),
    ]
    assert raw.write(*[("INSERT", entity) for entity in written]) == ["OK"] * 5
    found = raw.read(p4r.Entity(table_entry={}))
    assert [e for e in found if not e.table_entry.is_const] == sorted(written, key=_table_order)
    assert [e.table_entry.match[0].exact.value for e in found if e.table_entry.is_const] == [b"\x0f"]


def _table_order(entity: Any) -> int:
    return list(SCHEMA.tables.by_id).index(entity.table_entry.table_id)


def test_values_are_returned_canonical(raw: Raw) -> None:
    assert raw.write(("INSERT", exact("\\x00\\x00\\x05", "\\x00\\x02", port=b"\x00\x00\x01"))) == ["OK"]
    assert raw.read(entry("exact_table")) == [exact()]
    assert raw.write(("DELETE", exact())) == ["OK"], "the canonical form names the same entry"


REFUSED_INSERTS = {
    "too wide a key": (exact("\\x01\\x00\\x00\\x00\\x00\\x00\\x00"), "OUT_OF_RANGE"),
    "too wide a key in bits": (exact(at="\\x02\\x00"), "OUT_OF_RANGE"),
    "an empty value": (exact(""), "OUT_OF_RANGE"),
    "too wide a parameter": (exact(port=b"\x02\x00"), "OUT_OF_RANGE"),
    "a missing key": (entry("exact_table", 'match { field_id: 1 exact { value: "x" } }', "drop"), "INVALID_ARGUMENT"),
    "an unknown key": (
        entry("exact_table", EXACT.format("x", "x") + 'match { field_id: 3 exact { value: "x" } }', "drop"),
        "INVALID_ARGUMENT",
    ),
    "a key twice": (
        entry("exact_table", EXACT.format("x", "x") + 'match { field_id: 2 exact { value: "x" } }', "drop"),
        "INVALID_ARGUMENT",
    ),
    "another kind of match": (
        entry("prefix_table", 'match { field_id: 1 exact { value: "x" } }', "drop"),
        "INVALID_ARGUMENT",
    ),
    "no action": (exact(action=None), "INVALID_ARGUMENT"),
    "an action of another table": (entry("prefix_table", "", "flood", group=b"\x01"), "INVALID_ARGUMENT"),
    "a default-only action": (exact(action="NoAction"), "PERMISSION_DENIED"),
    "a missing parameter": (exact(action="flood"), "INVALID_ARGUMENT"),
    "a priority where none belongs": (entry("exact_table", EXACT.format("x", "x"), "drop", 5), "INVALID_ARGUMENT"),
    "no priority where one belongs": (entry("ternary_table", KIND, "drop"), "INVALID_ARGUMENT"),
    "a negative priority": (entry("ternary_table", KIND, "drop", -1), "INVALID_ARGUMENT"),
    "bits outside the prefix": (prefix("\\x0a\\x00\\x00\\x01", 8), "INVALID_ARGUMENT"),
    "an empty prefix": (prefix("\\x00", 0), "INVALID_ARGUMENT"),
    "too long a prefix": (prefix("\\x00", 33), "INVALID_ARGUMENT"),
    "bits outside the mask": (ternary('field_id: 1 ternary { value: "\\x11" mask: "\\xf0" }'), "INVALID_ARGUMENT"),
    "an empty mask": (ternary('field_id: 1 ternary { value: "\\x00" mask: "\\x00" }'), "INVALID_ARGUMENT"),
    "an empty range": (ternary('field_id: 2 range { low: "\\x02" high: "\\x01" }'), "INVALID_ARGUMENT"),
    "a range of everything": (ternary('field_id: 2 range { low: "\\x00" high: "\\xff" }'), "INVALID_ARGUMENT"),
    "an entry of a table without keys": (entry("keyless_table", "", "drop"), "INVALID_ARGUMENT"),
    "an entry of a const table": (
        entry("const_table", 'match { field_id: 1 exact { value: "\\x01" } }', "drop"),
        "PERMISSION_DENIED",
    ),
    "an unknown table": (p4r.Entity(table_entry={"table_id": 0x02FFFFFF}), "INVALID_ARGUMENT"),
    "a default entry": (
        p4r.Entity(table_entry={"table_id": SCHEMA.tables["exact_table"].id, "is_default_action": True}),
        "INVALID_ARGUMENT",
    ),
}


@pytest.mark.parametrize("what", REFUSED_INSERTS)
def test_invalid_inserts_are_refused(raw: Raw, what: str) -> None:
    entity, code = REFUSED_INSERTS[what]
    assert raw.write(("INSERT", entity)) == [code]
    found = raw.read(p4r.Entity(table_entry={}))
    assert [one for one in found if not one.table_entry.is_const] == []


def test_a_batch_goes_on_after_an_error(raw: Raw) -> None:
    codes = raw.write(
        ("INSERT", exact()),
        ("INSERT", exact()),
        ("DELETE", exact("\\x09")),
        ("MODIFY", exact("\\x09")),
        ("INSERT", exact("\\x06")),
    )
    assert codes == ["OK", "ALREADY_EXISTS", "NOT_FOUND", "NOT_FOUND", "OK"]
    assert raw.read(entry("exact_table")) == [exact(), exact("\\x06")]


def test_an_insert_into_a_full_table_is_resource_exhausted(raw: Raw) -> None:
    codes = raw.write(*[("INSERT", exact(f"\\x0{i}")) for i in range(1, 6)])
    assert codes == ["OK"] * 4 + ["RESOURCE_EXHAUSTED"]


def test_a_modify_without_action_keeps_the_action(raw: Raw) -> None:
    bare = exact(action=None)
    bare.table_entry.metadata = b"note"
    assert raw.write(("INSERT", exact())) == ["OK"]
    assert raw.write(("MODIFY", bare)) == ["OK"]
    (found,) = raw.read(entry("exact_table"))
    assert found.table_entry.action == exact().table_entry.action
    assert found.table_entry.metadata == b"note"


def test_a_delete_compares_the_key_only(raw: Raw) -> None:
    nonsense = exact(action="flood", group=b"")
    nonsense.table_entry.metadata = b"whatever"
    assert raw.write(("INSERT", exact())) == ["OK"]
    assert raw.write(("DELETE", nonsense)) == ["OK"]
    assert raw.read(entry("exact_table")) == []


def default(table: str, action: str | None = None, **params: bytes) -> Any:
    entity = entry(table, "", action, **params)
    entity.table_entry.is_default_action = True
    return entity


def test_default_entries_are_set_and_reset(raw: Raw) -> None:
    assert raw.read(default("exact_table")) == [default("exact_table", "NoAction")]
    assert raw.write(("MODIFY", default("exact_table", "flood", group=b"\x01"))) == ["OK"]
    assert raw.read(default("exact_table")) == [default("exact_table", "flood", group=b"\x01")]
    assert raw.write(("MODIFY", default("exact_table"))) == ["OK"]
    assert raw.read(default("exact_table")) == [default("exact_table", "NoAction")]


def test_invalid_default_entries_are_refused(raw: Raw) -> None:
    with_key = default("exact_table", "drop")
    with_key.table_entry.match.add(field_id=1).exact.value = b"\x01"
    codes = raw.write(
        ("MODIFY", default("prefix_table", "drop")),
        ("MODIFY", default("exact_table", "report")),
        ("DELETE", default("exact_table")),
        ("MODIFY", with_key),
    )
    assert codes == ["PERMISSION_DENIED", "PERMISSION_DENIED", "INVALID_ARGUMENT", "INVALID_ARGUMENT"]


def test_reads_filter_by_match_action_and_priority(raw: Raw) -> None:
    other = entry("ternary_table", KIND, "forward", 9, port=b"\x01")
    raw.write(("INSERT", entry("ternary_table", KIND, "drop", 7)), ("INSERT", other))
    assert raw.read(entry("ternary_table", KIND, priority=9)) == [other]
    assert raw.read(entry("ternary_table", priority=9)) == [other]
    assert raw.read(entry("ternary_table", action="forward")) == [other]
    assert raw.read(entry("ternary_table", KIND, priority=8)) == []


def test_direct_counters_count_and_can_be_set(raw: Raw, switch: Served) -> None:
    raw.write(("INSERT", exact("\\x05", "\\x02")))
    frame = (5).to_bytes(6, "big") + bytes(9)
    switch.switch.receive(2, frame)
    direct = p4r.Entity()
    direct.direct_counter_entry.table_entry.CopyFrom(exact(action=None).table_entry)
    (found,) = raw.read(direct)
    assert (found.direct_counter_entry.data.packet_count, found.direct_counter_entry.data.byte_count) == (1, len(frame))
    direct.direct_counter_entry.data.packet_count = 40
    assert raw.write(("MODIFY", direct), ("INSERT", direct)) == ["OK", "INVALID_ARGUMENT"]
    query = exact(action=None)
    query.table_entry.counter_data.SetInParent()
    (found,) = raw.read(query)
    assert (found.table_entry.counter_data.packet_count, found.table_entry.counter_data.byte_count) == (40, 0)
    wildcard = p4r.Entity(direct_counter_entry={"table_entry": {"table_id": SCHEMA.tables["exact_table"].id}})
    assert len(raw.read(wildcard)) == 1
    other = p4r.Entity(direct_counter_entry={"table_entry": {"table_id": SCHEMA.tables["prefix_table"].id}})
    assert code_of(raw.read, other) == "INVALID_ARGUMENT"
    missing = p4r.Entity()
    missing.direct_counter_entry.table_entry.CopyFrom(exact("\\x77", action=None).table_entry)
    assert code_of(raw.read, missing) == "NOT_FOUND"

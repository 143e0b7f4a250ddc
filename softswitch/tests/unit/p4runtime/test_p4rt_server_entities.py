"""Counters, multicast groups, clone sessions, and what is not supported."""

from __future__ import annotations

from typing import Any

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from rigs.p4rt import SCHEMA, Raw, code_of

SEEN = SCHEMA.counters["seen"].id


def cell(index: int | None, packets: int | None = None, octets: int = 0, id: int = SEEN) -> Any:
    entity = p4r.Entity(counter_entry={"counter_id": id})
    if index is not None:
        entity.counter_entry.index.index = index
    if packets is not None:
        entity.counter_entry.data.packet_count, entity.counter_entry.data.byte_count = packets, octets
    return entity


def values(entities: list[Any]) -> list[tuple[int, int, int]]:
    cells = [entity.counter_entry for entity in entities]
    return [(one.index.index, one.data.packet_count, one.data.byte_count) for one in cells]


def test_counters_can_be_set(raw: Raw) -> None:
    assert raw.write(("MODIFY", cell(1, 5, 50))) == ["OK"]
    assert values(raw.read(cell(1))) == [(1, 5, 50)]
    assert values(raw.read(cell(None, id=0))) == [(i, 5 * (i == 1), 50 * (i == 1)) for i in range(8)]
    assert raw.write(("MODIFY", cell(1))) == ["OK"], "without data nothing is written"
    assert values(raw.read(cell(1))) == [(1, 5, 50)]
    assert raw.write(("MODIFY", cell(None, 0, 0))) == ["OK"]
    assert values(raw.read(cell(None))) == [(i, 0, 0) for i in range(8)]


def test_invalid_counter_entries_are_refused(raw: Raw) -> None:
    updates = [
        ("MODIFY", cell(8, 1)),
        ("MODIFY", cell(-1, 1)),
        ("INSERT", cell(1, 1)),
        ("DELETE", cell(1)),
        ("MODIFY", cell(1, 1, id=99)),
    ]
    assert raw.write(*updates) == ["OUT_OF_RANGE"] + ["INVALID_ARGUMENT"] * 4
    assert code_of(raw.read, cell(8)) == "OUT_OF_RANGE"
    assert code_of(raw.read, cell(None, id=99)) == "INVALID_ARGUMENT"


def group(id: int, *replicas: tuple[Any, int]) -> Any:
    entity = p4r.Entity()
    out = entity.packet_replication_engine_entry.multicast_group_entry
    out.multicast_group_id = id
    for port, instance in replicas:
        kind = "port" if isinstance(port, bytes) else "egress_port"
        out.replicas.add(instance=instance, **{kind: port})
    return entity


def session(id: int, *replicas: tuple[int, int], length: int = 0) -> Any:
    entity = p4r.Entity()
    out = entity.packet_replication_engine_entry.clone_session_entry
    out.session_id, out.packet_length_bytes = id, length
    for port, instance in replicas:
        out.replicas.add(instance=instance, egress_port=port)
    return entity


def test_groups_are_written_and_read(raw: Raw) -> None:
    assert raw.write(("INSERT", group(3, (1, 0), (2, 0), (2, 1))), ("INSERT", group(4, (b"\x01\x02", 5)))) == ["OK"] * 2
    assert raw.read(group(3)) == [group(3, (1, 0), (2, 0), (2, 1))]
    assert raw.read(group(0)) == [group(3, (1, 0), (2, 0), (2, 1)), group(4, (258, 5))]
    assert raw.write(("MODIFY", group(3, (9, 9))), ("DELETE", group(4))) == ["OK"] * 2
    assert raw.read(group(0)) == [group(3, (9, 9))]
    assert code_of(raw.read, group(4)) == "NOT_FOUND"


def test_invalid_multicast_groups_and_clone_sessions_are_refused(raw: Raw) -> None:
    updates = [
        ("INSERT", group(0, (1, 0))),
        ("INSERT", group(65536, (1, 0))),
        ("INSERT", group(1, (1, 0), (1, 0))),
        ("INSERT", group(1, (512, 0))),
        ("INSERT", group(1, (1, 65536))),
        ("INSERT", group(1, (b"", 0))),
        ("MODIFY", group(1, (1, 0))),
        ("DELETE", group(1)),
        ("INSERT", group(1, (1, 0))),
        ("INSERT", group(1, (1, 0))),
    ]
    assert raw.write(*updates) == [
        "INVALID_ARGUMENT",
        "OUT_OF_RANGE",
        *["INVALID_ARGUMENT"] * 4,
        *["NOT_FOUND"] * 2,
        "OK",
        "ALREADY_EXISTS",
    ]
    assert raw.read(group(0)) == [group(1, (1, 0))]
    sessions = ("INSERT", session(5, (1, 0), length=64)), ("MODIFY", session(6)), ("INSERT", session(0))
    assert raw.write(*sessions) == ["OK", "NOT_FOUND", "INVALID_ARGUMENT"]
    assert raw.read(session(0)) == [session(5, (1, 0), length=64)]


def test_unsupported_entities_are_unimplemented(raw: Raw) -> None:
    extern = p4r.Entity(extern_entry={"extern_id": 1})
    assert raw.write(("MODIFY", extern), ("INSERT", p4r.Entity())) == ["UNIMPLEMENTED", "INVALID_ARGUMENT"]
    assert raw.write(("UNSPECIFIED", group(1, (1, 0)))) == ["INVALID_ARGUMENT"]
    assert code_of(raw.read, extern) == "UNIMPLEMENTED"
    assert code_of(raw.read, p4r.Entity()) == "INVALID_ARGUMENT"

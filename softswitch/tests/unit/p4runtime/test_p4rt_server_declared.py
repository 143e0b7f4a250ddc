"""Tables whose entries the program declares, tables that no frame reaches, keys without a width: through P4Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.case import PROGRAMS
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.entries import MatchValue, TableEntry
from rigs.limits import LIMIT_S
from rigs.p4rt import Served, primary, served


@pytest.fixture
def switch() -> Iterator[Served]:
    with served() as one:
        yield one


def row(table: str, key: MatchValue, value: int, priority: int = 0) -> TableEntry:
    return TableEntry(f"MainIngress.{table}", {"key": key}, "MainIngress.set", {"value": value}, priority)


def answer(switch: Served, key: int) -> int:
    """The byte that the program writes behind a key."""
    switch.switch.receive(1, bytes((key, 0)))
    return switch.ports.sent.get(timeout=LIMIT_S)[1][1]


def test_declared_entries_can_be_modified_deleted_and_inserted(switch: Served) -> None:
    with primary(switch.address) as client:
        client.set_program(PROGRAMS / "initial_entries")
        assert [answer(switch, key) for key in (1, 2, 4)] == [11, 12, 0xEE]
        client.do("MODIFY", row("exactly", 1, 15))
        client.do("DELETE", row("exactly", 2, 12))
        client.insert(row("exactly", 4, 14))
        assert [answer(switch, key) for key in (1, 2, 4)] == [15, 0xEE, 14]
        client.insert(*(row("exactly", key, key) for key in (5, 6)))
        codes = client.write(("INSERT", row("exactly", 7, 7)))
        assert codes == ["RESOURCE_EXHAUSTED"], "the size is that of P4Info"
        client.insert(row("masked", (0x13, 0xFF), 39, 4))
        assert answer(switch, 0x13) == 39, "the priorities of declared entries are below: there are three"
        assert {entry.match["key"]: entry.params["value"] for entry in client.entries("MainIngress.exactly")} == {
            1: 15,
            4: 14,
            5: 5,
            6: 6,
        }


def test_reconciling_keeps_changes_of_declared_entries(switch: Served) -> None:
    with primary(switch.address) as client:
        client.set_program(PROGRAMS / "initial_entries")
        client.do("MODIFY", row("exactly", 1, 15))
        client.do("DELETE", row("exactly", 2, 12))
        before = client.get_config()
        client.set_config("RECONCILE_AND_COMMIT", before)
        assert client.get_config() == before
        assert [answer(switch, key) for key in (1, 2, 3)] == [15, 0xEE, 31]


def test_a_table_that_no_frame_reaches_takes_no_entries(switch: Served) -> None:
    with primary(switch.address) as client:
        client.set_program(PROGRAMS / "unreachable_table")
        (error,) = client.errors(("INSERT", row("unreached", 1, 1)))
        assert "nothing in the program applies table MainIngress.unreached" in error.message


def test_translated_types_are_numbers_and_strings_are_refused(switch: Served) -> None:
    def wide(key: int, action: str = "widen", value: int = 3) -> TableEntry:
        param = {"widen": "wide", "answer": "value"}[action]
        return TableEntry("MainIngress.wides", {"hdr.h.wide": key}, f"MainIngress.{action}", {param: value})

    with primary(switch.address) as client:
        client.set_program(PROGRAMS / "translated_types")
        client.insert(wide(2), wide(4, "answer"))
        found = client.entries("MainIngress.wides")
        assert sorted(found, key=str) == [wide(2), wide(4, "answer")]
        switch.switch.receive(1, bytes((0, 0, 2, 0)))
        assert switch.ports.sent.get(timeout=LIMIT_S)[1] == bytes((0, 9, 3, 0))
        assert client.write(("INSERT", wide(0x102)), ("INSERT", wide(5, value=0x105))) == ["OUT_OF_RANGE"] * 2

        def raw_entry(table: str, key: bytes, action: str, param: bytes) -> Any:
            entity = p4r.Entity()
            entity.table_entry.table_id = client.schema.tables[table].id
            entity.table_entry.match.add(field_id=1).exact.value = key
            entity.table_entry.action.action.action_id = client.schema.actions[action].id
            entity.table_entry.action.action.params.add(param_id=1, value=param)
            return entity

        numbers = raw_entry("names", b"\x00", "answer", b"\x01")
        strings = raw_entry("names", b"one", "call_it", b"one")
        assert client.write(("INSERT", numbers), ("INSERT", strings)) == ["UNIMPLEMENTED"] * 2

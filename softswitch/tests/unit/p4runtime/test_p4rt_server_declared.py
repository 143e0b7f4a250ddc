"""Tables whose entries the program declares, tables that no frame reaches, keys without a width: through P4Runtime."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance.case import PROGRAMS
from p4reduce_controller.p4runtime.client import Client
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.entries import MatchValue, TableEntry
from p4reduce_runtime.p4runtime.errors import SchemaError, WriteError
from p4reduce_runtime.p4runtime.schema import parse_p4info
from rigs.limits import LIMIT_S
from rigs.p4rt import Raw, Served, config, served


@pytest.fixture
def switch() -> Iterator[Served]:
    with served() as one:
        yield one


def files(name: str) -> tuple[str, bytes]:
    stem = PROGRAMS / name
    return stem.with_suffix(".p4info.txtpb").read_text(), stem.with_suffix(".json").read_bytes()


def row(table: str, key: MatchValue, value: int, priority: int = 0) -> TableEntry:
    return TableEntry(f"MainIngress.{table}", {"key": key}, "MainIngress.set", {"value": value}, priority)


def answer(switch: Served, key: int) -> int:
    """The byte that the program writes behind a key."""
    switch.switch.receive(1, bytes((key, 0)))
    return switch.ports.sent.get(timeout=LIMIT_S)[1][1]


def refusal(client: Client, *updates: tuple[str, TableEntry]) -> list[str]:
    with pytest.raises(WriteError) as refused:
        client.write(updates)  # type: ignore[arg-type]
    return [failure.code for failure in refused.value.failures]


def test_declared_entries_can_be_modified_deleted_and_inserted(switch: Served) -> None:
    with Client(switch.address) as client:
        client.set_pipeline(*files("initial_entries"))
        assert [answer(switch, key) for key in (1, 2, 4)] == [11, 12, 0xEE]
        client.write(
            [("modify", row("exactly", 1, 15)), ("delete", row("exactly", 2, 12)), ("insert", row("exactly", 4, 14))]
        )
        assert [answer(switch, key) for key in (1, 2, 4)] == [15, 0xEE, 14]
        client.write([("insert", row("exactly", key, key)) for key in (5, 6)])
        assert refusal(client, ("insert", row("exactly", 7, 7))) == ["RESOURCE_EXHAUSTED"], "the size is that of P4Info"
        client.insert(row("masked", (0x13, 0xFF), 39, 4))
        assert answer(switch, 0x13) == 39, "the priorities of declared entries are below: there are three"
        assert {entry.match["key"]: entry.params["value"] for entry in client.read_table("MainIngress.exactly")} == {
            1: 15,
            4: 14,
            5: 5,
            6: 6,
        }


def test_reconciling_keeps_changes_of_declared_entries(switch: Served) -> None:
    with Client(switch.address) as client:
        client.set_pipeline(*files("initial_entries"))
        client.write([("modify", row("exactly", 1, 15)), ("delete", row("exactly", 2, 12))])
        p4info, device_config = files("initial_entries")
    with Raw(switch.address) as raw:
        raw.arbitrate()
        raw.set_config("RECONCILE_AND_COMMIT", raw.get_config())
        assert raw.get_config().p4_device_config == device_config
        assert [answer(switch, key) for key in (1, 2, 3)] == [15, 0xEE, 31]


def test_a_table_that_no_frame_reaches_takes_no_entries(switch: Served) -> None:
    with Client(switch.address) as client:
        client.set_pipeline(*files("unreachable_table"))
        with pytest.raises(WriteError, match="nothing in the program applies table MainIngress.unreached"):
            client.insert(row("unreached", 1, 1))


def test_translated_types_are_numbers_and_strings_are_refused(switch: Served) -> None:
    def wide(key: int, action: str = "widen", value: int = 3) -> TableEntry:
        param = {"widen": "wide", "answer": "value"}[action]
        return TableEntry("MainIngress.wides", {"hdr.h.wide": key}, f"MainIngress.{action}", {param: value})

    with Client(switch.address) as client:
        client.set_pipeline(*files("translated_types"))
        client.insert(wide(2), wide(4, "answer"))
        found = client.read_table("MainIngress.wides")
        assert sorted(found, key=lambda entry: str(entry.match)) == [wide(2), wide(4, "answer")]
        switch.switch.receive(1, bytes((0, 0, 2, 0)))
        assert switch.ports.sent.get(timeout=LIMIT_S)[1] == bytes((0, 9, 3, 0))
        assert refusal(client, ("insert", wide(0x102)), ("insert", wide(5, value=0x105))) == ["OUT_OF_RANGE"] * 2
        named = TableEntry("MainIngress.names", {"hdr.h.name": 2}, "MainIngress.answer", {"value": 3})
        with pytest.raises(SchemaError, match="translates the type of hdr.h.name to strings"):
            client.insert(named)
    p4info, device_config = files("translated_types")
    declared = parse_p4info(p4info)
    tables = {table.preamble.alias: table for table in declared.tables}
    actions = {action.preamble.alias: action.preamble.id for action in declared.actions}

    def raw_entry(table: str, key: bytes, action: str, param: bytes) -> Any:
        entity = p4r.Entity()
        entity.table_entry.table_id = tables[table].preamble.id
        entity.table_entry.match.add(field_id=1).exact.value = key
        entity.table_entry.action.action.action_id = actions[action]
        entity.table_entry.action.action.params.add(param_id=1, value=param)
        return entity

    with Raw(switch.address) as raw:
        raw.arbitrate()
        raw.set_config(config=config(device_config, p4info=declared))
        assert (
            raw.write(
                ("INSERT", raw_entry("names", b"\x00", "answer", b"\x01")),
                ("INSERT", raw_entry("names", b"one", "call_it", b"one")),
            )
            == ["UNIMPLEMENTED"] * 2
        )

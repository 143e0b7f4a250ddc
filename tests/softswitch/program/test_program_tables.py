"""Tables as the control plane uses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from p4reduce_switch.program import (
    EntryExists,
    EntryMissing,
    KeyField,
    Program,
    Table,
    TableFull,
    TableIsConst,
)
from p4reduce_switch.program.state.tables import Binding

FORWARD, FLOOD, DROP = "MainIngress.forward", "MainIngress.flood", "MainIngress.drop"
MAC = bytes.fromhex("020000000002")
FRAME = MAC + bytes.fromhex("020000000001 0800") + b"payload"


def table_of(*keys: tuple[str, int], max_size: int = 8) -> tuple[Table, Callable[..., int]]:
    """A table with one action mark(value:8) and default mark(0), and a function that looks a key up."""
    table = Table(
        "t",
        keys=[KeyField(f"k{i}", kind, width) for i, (kind, width) in enumerate(keys)],
        max_size=max_size,
        action_params={"mark": [("value", 8)]},
        default_action=("mark", (0,)),
    )
    table.bind({"mark": Binding(lambda f, value: None, 0, 0)}, [])

    def look(*key: int) -> int:
        argument: Any = key[0] if len(key) == 1 else key
        return (table.get(argument) or table.miss(argument))[1][0]

    return table, look


def test_insert_modify_delete_through_a_program(load: Callable[[str], Program]) -> None:
    program = load("l2")
    mac = program.tables["MainIngress.mac"]
    key = (int.from_bytes(MAC, "big"),)
    assert mac.keys == [KeyField("hdr.ethernet.dst", "exact", 48)]
    assert mac.action_names == [FORWARD, FLOOD, DROP]
    assert mac.action_params[FORWARD] == [("port", 9)]
    assert program.process(1, FRAME) == []  # floods to a group without members
    mac.insert(key, 0, FORWARD, (4,))
    assert program.process(1, FRAME) == [(4, FRAME)]
    mac.modify(key, 0, FORWARD, (5,))
    assert program.process(1, FRAME) == [(5, FRAME)]
    assert program.process(5, FRAME) == []  # egress drops what would go back
    mac.modify(key, 0, DROP, ())
    assert program.process(1, FRAME) == []
    (entry,) = mac.entries()
    assert (entry.match, entry.action, entry.packets, entry.bytes) == (key, DROP, 4, 4 * len(FRAME))
    mac.delete(key, 0)
    assert list(mac.entries()) == []


def test_default_action_can_be_changed_and_reset(load: Callable[[str], Program]) -> None:
    program = load("l2")
    mac = program.tables["MainIngress.mac"]
    assert (mac.default_action, mac.default_is_const) == ((FLOOD, ()), False)
    mac.set_default(FORWARD, (3,))
    assert program.process(1, FRAME) == [(3, FRAME)]
    mac.reset_default()
    assert mac.default_action == (FLOOD, ())
    assert program.process(1, FRAME) == []


def test_refused_writes(load: Callable[[str], Program]) -> None:
    mac = load("l2").tables["MainIngress.mac"]
    mac.insert((1,), 0, FLOOD, ())
    with pytest.raises(EntryExists, match="already"):
        mac.insert((1,), 0, DROP, ())
    with pytest.raises(EntryMissing):
        mac.modify((2,), 0, DROP, ())
    with pytest.raises(EntryMissing):
        mac.delete((2,), 0)
    with pytest.raises(KeyError, match="has no action"):
        mac.insert((2,), 0, "nothing", ())
    with pytest.raises(ValueError, match="does not fit 9 bits"):
        mac.insert((2,), 0, FORWARD, (512,))
    with pytest.raises(ValueError, match="takes 1 parameters"):
        mac.insert((2,), 0, FORWARD, ())
    with pytest.raises(ValueError, match="does not fit 48 bits"):
        mac.insert((1 << 48,), 0, FLOOD, ())
    with pytest.raises(ValueError, match="takes no priority"):
        mac.insert((2,), 1, FLOOD, ())
    mac.insert((2,), 0, FLOOD, ())
    mac.insert((3,), 0, FLOOD, ())
    with pytest.raises(TableFull, match="3 entries"):
        mac.insert((4,), 0, FLOOD, ())


def test_const_entries_cannot_be_changed(load: Callable[[str], Program]) -> None:
    tables = load("tables").tables
    exact = tables["MainIngress.exact_"]
    assert exact.const and [e.const for e in exact.entries()] == [True, True]
    with pytest.raises(TableIsConst):
        exact.insert((9, 9), 0, "MainIngress.none", ())
    with pytest.raises(TableIsConst):
        exact.delete((1, 2), 0)
    assert [e.priority for e in tables["MainIngress.ternary_"].entries()] == [3, 2, 1]


def test_lpm_prefers_the_longest_prefix() -> None:
    table, look = table_of(("lpm", 32), ("exact", 8))
    table.insert(((0x0A000000, 8), 1), 0, "mark", (8,))
    table.insert(((0x0A0B0000, 16), 1), 0, "mark", (16,))
    table.insert(((0, 0), 2), 0, "mark", (99,))
    assert [look(0x0A0B0C0D, 1), look(0x0A0C0C0D, 1), look(0x0B000000, 1), look(0, 2)] == [16, 8, 0, 99]
    table.delete(((0x0A0B0000, 16), 1), 0)  # what was looked up before must not be remembered
    assert look(0x0A0B0C0D, 1) == 8
    with pytest.raises(EntryExists):  # bits beyond the prefix do not make another entry
        table.insert(((0x0AFFFFFF, 8), 1), 0, "mark", (1,))
    with pytest.raises(ValueError, match="prefix length 33"):
        table.insert(((0, 33), 1), 0, "mark", (1,))


def test_ternary_prefers_the_larger_priority() -> None:
    table, look = table_of(("ternary", 8), ("optional", 8), ("range", 8))
    table.insert(((0x10, 0xF0), None, (0, 255)), 10, "mark", (1,))
    assert look(0x12, 5, 7) == 1
    table.insert(((0x12, 0xFF), 5, (7, 9)), 20, "mark", (2,))
    table.insert(((0, 0), None, (0, 255)), 1, "mark", (3,))
    assert [look(0x12, 5, 7), look(0x12, 5, 10), look(0x12, 6, 7), look(0x20, 0, 0)] == [2, 1, 1, 3]
    table.modify(((0x12, 0xFF), 5, (7, 9)), 20, "mark", (4,))
    assert look(0x12, 5, 9) == 4
    table.delete(((0x12, 0xFF), 5, (7, 9)), 20)
    assert look(0x12, 5, 9) == 1
    table.set_default("mark", (7,))
    table.delete(((0, 0), None, (0, 255)), 1)
    assert look(0x20, 0, 0) == 7
    with pytest.raises(ValueError, match="needs a priority"):
        table.insert(((0, 0), None, (0, 255)), 0, "mark", (1,))
    with pytest.raises(ValueError, match="empty range"):
        table.insert(((0, 0), None, (5, 4)), 1, "mark", (1,))
    with pytest.raises(ValueError, match="not a ternary match"):
        table.insert((5, None, (0, 255)), 1, "mark", (1,))


def test_equal_priorities_keep_their_order() -> None:
    table, look = table_of(("ternary", 8))
    table.insert(((0x10, 0xF0),), 5, "mark", (1,))
    table.insert(((0x01, 0x0F),), 5, "mark", (2,))
    assert look(0x11) == 1
    table.modify(((0x10, 0xF0),), 5, "mark", (3,))
    assert look(0x11) == 3

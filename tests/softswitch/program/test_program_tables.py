"""Tables as the control plane uses them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from p4reduce_switch.program import (
    EntryExistsError,
    EntryMissingError,
    KeyField,
    Program,
    TableFullError,
    TableIsConstError,
)
from rigs.table_program import MISS, TableProgram

FORWARD, FLOOD, DROP = "MainIngress.forward", "MainIngress.flood", "MainIngress.drop"
MAC = bytes.fromhex("020000000002")
FRAME = MAC + bytes.fromhex("020000000001 0800") + b"payload"


def test_insert_modify_delete_through_a_program(load: Callable[[str], Program]) -> None:
    program = load("l2")
    mac = program.tables["MainIngress.mac"]
    key = (int.from_bytes(MAC, "big"),)
    assert mac.keys == [KeyField("hdr.ethernet.dst", "exact", 48)]
    assert list(mac.action_params) == [FORWARD, FLOOD, DROP]
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
    with pytest.raises(EntryExistsError, match="already"):
        mac.insert((1,), 0, DROP, ())
    with pytest.raises(EntryMissingError):
        mac.modify((2,), 0, DROP, ())
    with pytest.raises(EntryMissingError):
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
    with pytest.raises(TableFullError, match="3 entries"):
        mac.insert((4,), 0, FLOOD, ())


def test_const_entries_cannot_be_changed(load: Callable[[str], Program]) -> None:
    tables = load("tables").tables
    exact = tables["MainIngress.exact_"]
    assert exact.const and [e.const for e in exact.entries()] == [True, True]
    with pytest.raises(TableIsConstError):
        exact.insert((9, 9), 0, "MainIngress.none", ())
    with pytest.raises(TableIsConstError):
        exact.delete((1, 2), 0)
    assert [e.priority for e in tables["MainIngress.ternary_"].entries()] == [3, 2, 1]


def test_lpm_prefers_the_longest_prefix() -> None:
    made = TableProgram([("lpm", 32), ("exact", 8)])
    table, look = made.table, made.look
    table.insert(((0x0A000000, 8), 1), 0, "mark", (8,))
    table.insert(((0x0A0B0000, 16), 1), 0, "mark", (16,))
    table.insert(((0, 0), 2), 0, "mark", (99,))
    assert [look(0x0A0B0C0D, 1), look(0x0A0C0C0D, 1), look(0x0B000000, 1), look(0, 2)] == [16, 8, 0, 99]
    table.delete(((0x0A0B0000, 16), 1), 0)  # what was looked up before must not be remembered
    assert look(0x0A0B0C0D, 1) == 8
    with pytest.raises(EntryExistsError):  # bits beyond the prefix do not make another entry
        table.insert(((0x0AFFFFFF, 8), 1), 0, "mark", (1,))
    with pytest.raises(ValueError, match="prefix length 33"):
        table.insert(((0, 33), 1), 0, "mark", (1,))


def test_ternary_prefers_the_larger_priority() -> None:
    made = TableProgram([("ternary", 8), ("optional", 8), ("range", 8)])
    table, look = made.table, made.look
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
    made = TableProgram([("ternary", 8)])
    table, look = made.table, made.look
    table.insert(((0x10, 0xF0),), 5, "mark", (1,))
    table.insert(((0x01, 0x0F),), 5, "mark", (2,))
    assert look(0x11) == 1
    table.modify(((0x10, 0xF0),), 5, "mark", (3,))
    assert look(0x11) == 3


KEYS = {
    "exact": [("exact", 8), ("exact", 70)],
    "wide": [("exact", 300)],
    "lpm": [("lpm", 32)],
    "lpm and exact": [("exact", 8), ("lpm", 130)],
    "ternary": [("ternary", 16), ("exact", 8)],
    "ternary of two words": [("ternary", 100)],
    "range": [("range", 12), ("ternary", 4)],
    "optional": [("optional", 8), ("exact", 4), ("lpm", 8)],
}


def random_value(source: random.Random, bits: int) -> int:
    """A value among few, so that entries meet each other and frames."""
    full = (1 << bits) - 1
    return source.choice((0, 1, 2, 3, full, full >> 1, source.getrandbits(bits))) & full


def random_part(source: random.Random, kind: str, bits: int) -> Any:
    """One element of a match."""
    full, value = (1 << bits) - 1, random_value(source, bits)
    match kind:
        case "exact":
            return value
        case "lpm":
            length = source.choice((0, 1, bits // 2, bits - 1, bits))
            return value & full ^ (value & full >> length), length
        case "ternary":
            mask = source.choice((0, full, full ^ (full >> 3), source.getrandbits(bits)))
            return value & mask, mask
        case "range":
            return tuple(sorted((value, random_value(source, bits))))
    return source.choice((None, value))


def matches(kind: str, bits: int, part: Any, value: int) -> bool:
    """Whether an element of a match takes a key's value, as the P4Runtime specification defines it."""
    match kind:
        case "exact":
            return bool(value == part)
        case "lpm":
            return value >> bits - part[1] == part[0] >> bits - part[1]
        case "ternary":
            return value & part[1] == part[0]
        case "range":
            return part[0] <= value <= part[1]
    return part is None or bool(value == part)


def rank(kinds: list[str], match: tuple[Any, ...], priority: int) -> int:
    """The larger one is preferred: the priority, or the length of the prefix."""
    if priority:
        return priority
    return sum(part[1] for kind, part in zip(kinds, match, strict=True) if kind == "lpm")


@pytest.mark.parametrize("name", KEYS)
def test_lookups_find_what_a_search_of_all_entries_finds(name: str) -> None:
    keys, source = KEYS[name], random.Random(name)
    kinds = [kind for kind, _ in keys]
    made = TableProgram(keys, max_size=64)
    ranked = bool({"ternary", "range", "optional"} & set(kinds))
    held: dict[tuple[Any, ...], int] = {}
    for _ in range(1500):
        if held and source.random() < 0.4:
            match, priority = source.choice(list(held))
        else:
            match = tuple(random_part(source, kind, bits) for kind, bits in keys)
            priority = source.randint(1, 4) if ranked else 0
        mark, known = source.randrange(256), (match, priority) in held
        if known and source.random() < 0.5:
            made.table.delete(match, priority)
            del held[match, priority]
        elif known:
            made.table.modify(match, priority, "mark", (mark,))
            held[match, priority] = mark
        elif len(held) < 64:
            made.table.insert(match, priority, "mark", (mark,))
            held[match, priority] = mark
        key = [random_value(source, bits) for _, bits in keys]
        found = [
            (rank(kinds, match, priority), mark)
            for (match, priority), mark in held.items()
            if all(matches(*kind, part, value) for kind, part, value in zip(keys, match, key, strict=True))
        ]
        expected = max(found, key=lambda entry: entry[0])[1] if found else MISS  # of equal ranks the first
        assert made.look(*key) == expected
    assert [(entry.match, entry.priority, entry.params[0]) for entry in made.table.entries()] == [
        (*identity, mark) for identity, mark in held.items()
    ]


@pytest.mark.parametrize("kind", ["exact", "lpm"])
def test_very_many_entries(kind: str) -> None:
    """The hash table grows and shrinks, and the scan's order is kept."""
    made = TableProgram([(kind, 32)], max_size=2000)

    def match(index: int) -> tuple[Any, ...]:
        return (index * 7919,) if kind == "exact" else ((index << 16, 16),)

    for index in range(2000):
        made.table.insert(match(index), 0, "mark", (index % 255 + 1,))
    for index in range(0, 2000, 2):
        made.table.delete(match(index), 0)
    for index in range(0, 2000, 37):
        value = index * 7919 if kind == "exact" else index << 16 | 5
        assert made.look(value) == (index % 255 + 1 if index % 2 else MISS)
    assert sum(1 for _ in made.table.entries()) == 1000

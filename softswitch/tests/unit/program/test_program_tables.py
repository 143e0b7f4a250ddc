"""Tables as the control plane uses them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from conformance.case import PROGRAMS
from p4reduce_switch.program import Program
from p4reduce_switch.program.errors import EntryExistsError, EntryMissingError, TableFullError
from p4reduce_switch.program.state.tables import Table
from rigs.entries import insert, match_of

MISS = 0
"""The value that the frame has after a miss."""


class TableProgram:
    """A table with keys of these (kind, bits); `look` runs a frame with a value for each key through it.

    Its action mark(value) has 8 bits, the default is mark(MISS).
    """

    def __init__(self, keys: Sequence[tuple[str, int]], max_size: int = 8) -> None:
        self._bits = [bits for _, bits in keys]
        fields: list[list[Any]] = [[f"k{number}", bits, False] for number, bits in enumerate(self._bits)]
        fields.append(["pad", -sum(self._bits) % 8 + 8, False])
        fields.append(["result", 8, False])
        self._length = sum(bits for _, bits, _ in fields) // 8
        kinds = {kind for kind, _ in keys}
        whole = "range" if "range" in kinds else "ternary" if kinds & {"ternary", "optional"} else "lpm"
        config: dict[str, Any] = json.loads((PROGRAMS / "casts.json").read_text())
        config["header_types"][2]["fields"] = fields
        action = config["actions"][0]
        action["name"], action["runtime_data"] = "mark", [{"name": "value", "bitwidth": 8}]
        result = {"type": "field", "value": ["h", "result"]}
        port = {"type": "field", "value": ["standard_metadata", "egress_spec"]}
        action["primitives"] = [
            {"op": "assign", "parameters": [result, {"type": "runtime_data", "value": 0}]},
            {"op": "assign", "parameters": [port, {"type": "hexstr", "value": "0x1"}]},
        ]
        table = config["pipelines"][0]["tables"][0]
        table |= {
            "match_type": "exact" if kinds == {"exact"} else whole,
            "max_size": max_size,
            "actions": ["mark"],
            "next_tables": {"mark": None},
            "key": [
                {"match_type": kind, "name": f"k{number}", "target": ["h", f"k{number}"], "mask": None}
                for number, (kind, _) in enumerate(keys)
            ],
        }
        table["default_entry"] |= {"action_const": False, "action_data": [hex(MISS)], "action_entry_const": False}
        self.program = Program(config)
        (table,) = (table for table in self.program.tables.values() if table.keys)
        self.table: Table = table

    def look(self, *key: int) -> int:
        """Return what the table's action writes for this key."""
        number = 0
        for value, bits in zip(key, self._bits, strict=True):
            number = number << bits | value
        number <<= 8 * self._length - sum(self._bits)
        ((_, frame),) = self.program.process(1, number.to_bytes(self._length, "big"))
        return frame[-1]


def test_writes_are_refused_that_do_not_go_with_the_entries() -> None:
    table = TableProgram([("lpm", 32)], max_size=2).table
    insert(table, ((0x0A000000, 8),), "mark", (1,))
    with pytest.raises(EntryExistsError, match="already"):  # bits beyond the prefix do not make another entry
        insert(table, ((0x0AFFFFFF, 8),), "mark", (2,))
    with pytest.raises(EntryMissingError):
        table.modify(match_of(table, (0, 8)), 0, ("mark", (2,)))
    with pytest.raises(EntryMissingError):
        table.delete(match_of(table, (0, 8)), 0)
    insert(table, ((0, 8),), "mark", (2,))
    with pytest.raises(TableFullError, match="2 entries"):
        insert(table, ((0, 9),), "mark", (3,))


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
        tests = match_of(made.table, *match)
        if known and source.random() < 0.5:
            made.table.delete(tests, priority)
            del held[match, priority]
        elif known:
            made.table.modify(tests, priority, ("mark", (mark,)))
            held[match, priority] = mark
        elif len(held) < 64:
            made.table.insert(tests, priority, ("mark", (mark,)))
            held[match, priority] = mark
        key = [random_value(source, bits) for _, bits in keys]
        found = [
            (rank(kinds, match, priority), mark)
            for (match, priority), mark in held.items()
            if all(matches(*kind, part, value) for kind, part, value in zip(keys, match, key, strict=True))
        ]
        expected = max(found, key=lambda entry: entry[0])[1] if found else MISS  # of equal ranks the first
        assert made.look(*key) == expected
    assert [(entry.match, entry.priority, entry.call) for entry in made.table.entries()] == [
        (match_of(made.table, *match), priority, ("mark", (mark,))) for (match, priority), mark in held.items()
    ]


@pytest.mark.parametrize("kind", ["exact", "lpm"])
def test_very_many_entries(kind: str) -> None:
    """The hash table grows and shrinks, and the scan's order is kept."""
    made = TableProgram([(kind, 32)], max_size=2000)

    def match(index: int) -> tuple[Any, ...]:
        return (index * 7919,) if kind == "exact" else ((index << 16, 16),)

    for index in range(2000):
        insert(made.table, match(index), "mark", (index % 255 + 1,))
    for index in range(0, 2000, 2):
        made.table.delete(match_of(made.table, *match(index)), 0)
    for index in range(0, 2000, 37):
        value = index * 7919 if kind == "exact" else index << 16 | 5
        assert made.look(value) == (index % 255 + 1 if index % 2 else MISS)
    assert sum(1 for _ in made.table.entries()) == 1000

"""Entries and frames for the small programs about tables."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.case import Case, Step, Write, insert, program_case
from conformance.frames import counted, hexes, noise
from p4reduce_controller.p4runtime.entries import MatchValue, TableEntry


def entry(
    table: str, match: Mapping[str, MatchValue], action: str = "answer", priority: int = 0, **params: int
) -> TableEntry:
    """An entry of a table of ingress; NoAction stands for itself, other actions are ingress's."""
    full = action if action == "NoAction" else f"MainIngress.{action}"
    return TableEntry(f"MainIngress.{table}", match, full, params, priority)


def cases() -> list[Case]:
    """Every case of this module."""
    return [
        *_exact(),
        *_prefixes(),
        *_priorities(),
        *_actions(),
    ]


def _exact() -> list[Case]:
    pairs = [entry("pairs", {"a": a, "b": b}, value=n + 1) for n, (a, b) in enumerate(((1, 2), (1, 3), (0, 0)))]
    probes = hexes("01000200aa", "0100030000", "01000400bb", "00000000", "0200020011", "01")
    wide = [entry("wide", {"key": k}, value=v) for k, v in ((0, 1), ((1 << 128) - 1, 1 << 127), (1 << 64, 7 << 60))]
    translated = hexes("12300203aa", "12450203", "00060203", "fff70203ee", "0f080203", "1230", "12")
    masked = [
        entry("keys", {"low": low, "sum": total, "tail": tail}, value=n)
        for n, (low, total, tail) in enumerate(((1, 3, 0), (1, 0x83, 1), (0xF, 0, 1), (0xF, 0x0F, 0)))
    ]
    return [
        program_case(
            "exact_two_keys",
            *probes,
            insert(*pairs),
            *probes,
            insert(pairs[0]),
            insert(entry("pairs", {"a": 9, "b": 9}, value=9)),
            insert(entry("pairs", {"a": 8, "b": 9}, value=9)),
            Write((("modify", entry("pairs", {"a": 1, "b": 3}, value=77)),)),
            Write((("modify", entry("pairs", {"a": 5, "b": 5}, value=77)),)),
            Write((("delete", pairs[0]),)),
            Write((("delete", pairs[0]),)),
            *probes,
            *noise("exact", 20, 3, 4, 5),
        ),
        program_case(
            "wide_key",
            insert(*wide),
            *hexes("00" * 32, "ff" * 32, "00" * 7 + "01" + "00" * 24, "ff" * 15 + "fe" + "ab" * 16, "00" * 31),
        ),
        program_case(
            "translated_types",
            *translated,
            insert(*(entry("ids", {"hdr.h.id": id}, value=n) for n, id in enumerate((0x123, 0, 0xFFF)))),
            insert(entry("ids", {"hdr.h.id": 0x124}, "rename", id=0xABC)),
            insert(entry("ids", {"hdr.h.id": 0x123}, value=4)),
            *translated,
            Write((("modify", entry("ids", {"hdr.h.id": 0x123}, "rename", id=1)),)),
            *translated,
        ),
        program_case(
            "masked_key",
            insert(*masked),
            *hexes("010200", "81020099aa", "ff0100abcd", "0f0000", "8f0000", "8f000012", "1f00", "2102ff"),
            *counted((0x01, 0x0F, 0x81, 0xFF), (0, 1, 2, 0xF0, 0xFF), (0,), tail=b"xy"),
        ),
    ]


def _prefixes() -> list[Case]:
    routes = [(0x0A000000, 8), (0x0A010000, 16), (0x0A010100, 24), (0x0A010101, 32), (0xC0000000, 2), (0x0A800000, 9)]
    probes = hexes(
        "0a01010100", "0a01010200", "0a01020000", "0a02000000", "0a80000000", "c0a8000100", "ff00000000", "0b00000000"
    )
    entries = [entry("routes", {"address": route}, value=n + 1) for n, route in enumerate(routes)]
    return [
        program_case(
            "lpm",
            insert(*entries[::-1]),
            *probes,
            insert(entry("routes", {}, value=0x99)),
            *probes,
            Write((("delete", entries[3]), ("delete", entries[1]))),
            *probes,
            insert(entry("routes", {"address": (0x0A000000, 8)}, value=1)),
            insert(entry("routes", {"address": (0xFF000000, 8)}, "NoAction")),
            *probes,
            *noise("lpm", 30, 5, 6),
        ),
        program_case(
            "lpm_and_exact",
            insert(
                entry("routes", {"zone": 1, "address": (0x1200, 8)}, value=1),
                entry("routes", {"zone": 1, "address": (0x1230, 12)}, value=2),
                entry("routes", {"zone": 2, "address": (0x1234, 16)}, value=3),
                entry("routes", {"zone": 2}, value=4),
            ),
            *hexes("01123400", "01124400", "02123400", "02123500", "03123400", "01000000", "0212"),
        ),
    ]


def _priorities() -> list[Case]:
    rules = [
        ({"a": (0x1200, 0xFF00)}, 10),
        ({"a": (0x1234, 0xFFFF)}, 5),
        ({"a": (0x0004, 0x000F), "b": (0x80, 0x80)}, 20),
        ({"b": (0x81, 0xFF)}, 30),
        ({}, 1),
    ]
    probes = hexes("12340000", "12338100", "12340081ff", "00048000", "00040000", "ffff81ee", "ffff0000", "1234810011")
    ternary = [entry("rules", match, priority=p, value=n + 1) for n, (match, p) in enumerate(rules)]
    ranges = [((10, 20), 5), ((15, 15), 9), ((0, 0xFFFF), 1), ((0x8000, 0xFFFF), 3), ((20, 30), 4)]
    return [
        program_case(
            "ternary_priority",
            insert(*ternary),
            *probes,
            Write((("delete", ternary[3]),)),
            *probes,
            Write((("modify", entry("rules", {"b": (0x80, 0x80), "a": (4, 15)}, priority=20, value=0x42)),)),
            *probes,
            *noise("ternary", 30, 4, 5),
        ),
        program_case(
            "range_key",
            *[
                insert(entry("ranges", {"port": bounds}, priority=p, value=n + 1))
                for n, (bounds, p) in enumerate(ranges)
            ],
            *hexes(*(f"{port:04x}00" for port in (0, 9, 10, 14, 15, 16, 20, 21, 30, 31, 0x7FFF, 0x8000, 0xFFFF))),
        ),
        program_case(
            "optional_key",
            insert(
                entry("choices", {"a": 1, "b": 2}, priority=5, value=1),
                entry("choices", {"b": 2}, priority=3, value=2),
                entry("choices", {"a": 3, "b": 2}, priority=2, value=3),
            ),
            *counted((0, 1, 3), (2, 3), (0,)),
        ),
        program_case("const_entries", *counted((0, 7, 8, 0x10, 0x17, 0x18, 0x1F, 0x20), (0, 1, 2, 3, 4), (0,))),
        program_case("initial_entries", *_initial()),
        program_case(
            "unreachable_table",
            insert(entry("reached", {"key": 1}, "set", value=7), entry("unreached", {"key": 1}, "set", value=8)),
            *counted((0, 1), (0,)),
        ),
        program_case("error_key", *hexes("0000", "0100", "01000000", "0100ff")),
    ]


def _actions() -> list[Case]:
    run = [entry("second", {"key": 2}, "red"), entry("second", {"key": 3}, "blue", value=9)]
    default = TableEntry("MainIngress.only", action="MainIngress.answer", params={"high": 5, "low": 6}, is_default=True)
    steps = [entry(t, {"key": k}, "go", next=n) for t, k, n in (("one", 1, 1), ("two", 2, 2), ("three", 5, 4))]
    return [
        program_case("hit_and_miss", insert(entry("first", {"key": 2}, "red"), *run), *counted((1, 2, 3), (0,), (0,))),
        program_case(
            "default_action",
            insert(entry("only", {"key": 7}, high=0xFFFFFF, low=0), entry("only", {"key": 8}, "NoAction")),
            *counted((6, 7, 8), (0,), (0,), (0,), (1,)),
            Write((("modify", default),)),
            *counted((6, 7, 8), (0,), (0,), (0,), (1,)),
            Write((("modify", TableEntry("MainIngress.only", is_default=True)),)),
            *counted((6, 7, 8), (0,), (0,), (0,), (1,)),
        ),
        program_case(
            "keyless_table",
            *hexes("0001", "ffff", "00"),
            Write(
                (
                    (
                        "modify",
                        TableEntry(
                            "MainIngress.always", action="MainIngress.add", params={"value": 256}, is_default=True
                        ),
                    ),
                )
            ),
            *hexes("0001", "ffff", "00"),
        ),
        program_case(
            "table_chain",
            insert(*steps, entry("two", {"key": 1}, "NoAction"), entry("four", {"key": 3}, "go", next=0x10)),
            *counted(range(8), (0,)),
        ),
    ]


def _initial() -> list[Step]:
    """Entries that the program declares without const, before and after the control plane's writes to their tables."""
    probes = counted((0, 1, 2, 3, 4, 0x13, 0x23, 0x24, 0x34), (0,))
    added = entry("exactly", {"key": 4}, "set", value=14), entry("masked", {"key": (4, 0xFF)}, "set", 50, value=34)
    declared = entry("exactly", {"key": 1}, "set", value=15)
    return [
        *probes,
        insert(*added),
        *probes,
        insert(declared),
        Write((("modify", declared),)),
        *probes,
        Write((("delete", entry("exactly", {"key": 2}, "set", value=12)), ("delete", added[0]))),
        *probes,
    ]

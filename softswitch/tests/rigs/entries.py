"""Entries of a program's tables, as tests write them."""

from __future__ import annotations

from typing import Any

from p4reduce_switch.program.ir.program import KeyTest
from p4reduce_switch.program.state.tables import Table


def match_of(table: Table, *parts: Any) -> tuple[KeyTest, ...]:
    """Return a match; `parts` are as `KeyTest.of` takes them."""
    return tuple(KeyTest.of(key.kind, key.bits, part) for key, part in zip(table.keys, parts, strict=True))


def insert(table: Table, parts: tuple[Any, ...], action: str, params: tuple[int, ...]) -> None:
    """Insert an entry without a priority."""
    table.insert(match_of(table, *parts), 0, (action, params))

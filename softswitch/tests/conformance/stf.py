"""Steps of an .stf file, in which p4c keeps the frames of a sample and the entries that they need."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from conformance.case import Arrive, Step, Write, insert
from p4reduce_runtime.p4runtime.entries import MatchValue, MulticastGroup, TableEntry
from p4reduce_runtime.p4runtime.schema import ActionInfo, FieldInfo, Schema, TableInfo
from rigs.entity_text import clone_session


def steps(text: str, schema: Schema) -> Iterator[Step]:
    """Yield the steps of a file for this program; what it expects is left out. ValueError for an unknown line."""
    nodes: list[tuple[int, int]] = []
    groups: dict[str, tuple[tuple[int, int], ...]] = {}
    for line in text.splitlines():
        match line.partition("#")[0].split():
            case ["packet", port, *data]:
                yield Arrive(int(port), bytes.fromhex("".join(data)))
            case ["add", *words]:
                yield insert(_entry(" ".join(words), schema))
            case ["mirroring_add", session, port]:
                yield insert(clone_session(int(session), (int(port), 0)))
            case ["mc_mgrp_create", group]:
                yield insert(MulticastGroup(int(group)))
            case ["mc_node_create", instance, port]:
                nodes.append((int(port), int(instance)))
            case ["mc_node_associate", group, node]:
                groups[group] = (*groups.get(group, ()), nodes[int(node)])
                yield Write((("modify", MulticastGroup(int(group), groups[group])),))
            case [] | ["expect", *_] | ["wait"]:
                pass
            case _:
                raise ValueError(f"an .stf line that is not known: {line}")


def _entry(text: str, schema: Schema) -> TableEntry:
    """The entry of "TABLE [PRIORITY] KEY:VALUE ... ACTION(PARAMETER:VALUE, ...)", whose smallest priority wins."""
    words, _, arguments = text.rstrip(" )").partition("(")
    name, *keys, action_name = words.split()
    table: TableInfo = _named(schema.tables, name)
    action: ActionInfo = _named(map(schema.actions.find, table.action_ids), action_name)
    priority = int(keys.pop(0)) if keys and ":" not in keys[0] else 0
    pairs = [word.split(":") for word in keys]
    match = [(_named(table.keys, re.sub(r"\$(\d+)", r"[\1]", given)), value) for given, value in pairs]
    params = {param.strip(): int(value, 0) for param, value in re.findall(r"([^:,]+):([^,]+)", arguments)}
    largest_wins = (1 << 16) - priority if table.needs_priority else 0
    return TableEntry(
        table.name, {key.name: _match(key, value) for key, value in match}, action.name, params, largest_wins
    )


def _named(known: Iterable[TableInfo | ActionInfo | FieldInfo], name: str) -> Any:
    """The object whose full name ends with this one."""
    found = [one for one in known if f".{one.name}".endswith(f".{name}")]
    if len(found) != 1:
        raise ValueError(f"{len(found)} objects are called {name}")
    return found[0]


def _match(key: FieldInfo, text: str) -> MatchValue:
    """What a key has to be: a number, in which a * stands for any digit, or for an lpm key NUMBER/LENGTH."""
    if key.kind == "lpm":
        number, _, length = text.partition("/")
        return int(number, 0), int(length or key.bitwidth)
    value, mask = text.replace("*", "0"), re.sub("[0-9a-fA-F]", "f", text[2:]).replace("*", "0")
    return int(value, 0) if key.kind == "exact" else (int(value, 0), int(mask, 16))

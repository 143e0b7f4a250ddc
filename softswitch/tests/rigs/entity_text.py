"""P4Runtime entities in protobuf's text format, with names for ids: what the controller does not send.

Keys, actions and members are those of the small programs: an action has one parameter, a table one key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from google.protobuf import text_format

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.schema import Schema

ActionRow = tuple[str, int]
"""An action and its argument."""


def entity(schema: Schema, text: str) -> p4r.Entity:
    """Return the entity of a text in which `@name` stands for the id that the program gives to a name.

    What it says again of a field is merged with what it said before.
    """
    kinds = (
        *(schema.tables, schema.actions, schema.action_profiles),
        *(schema.counters, schema.meters, schema.registers, schema.value_sets),
    )
    ids = {name: one.id for kind in kinds for one in kind for name in (one.alias, one.name)}  # type: ignore[attr-defined]
    return text_format.Merge(re.sub(r"@([\w.]+)", lambda name: str(ids[name[1]]), text), p4r.Entity())


def octets(value: int) -> str:
    """Return P4Runtime's shortest byte string of a number, in quotes."""
    data = value.to_bytes(max(1, -(-value.bit_length() // 8)), "big")
    return f'"{text_format.text_encoding.CEscape(data, False)}"'


def action(name: str, value: int) -> str:
    """An action with its argument."""
    return f"action {{ action_id: @{name} params {{ param_id: 1 value: {octets(value)} }} }}"


def _watch(port: int) -> str:
    return f" watch_port: {octets(port)}" if port else ""


def member(profile: str, id: int, *row: ActionRow) -> str:
    """A member of an action profile; without an action to delete it."""
    given = " ".join(action(*one) for one in row)
    return f"action_profile_member {{ action_profile_id: @{profile} member_id: {id} {given} }}"


def group(profile: str, id: int, rows: Iterable[tuple[int, int, int]] = (), max_size: int = 0) -> str:
    """A group of an action selector: (member, weight, watch port) of each; port 0 stands for none."""
    members = " ".join(f"members {{ member_id: {one} weight: {weight}{_watch(port)} }}" for one, weight, port in rows)
    size = f" max_size: {max_size}" if max_size else ""
    return f"action_profile_group {{ action_profile_id: @{profile} group_id: {id}{size} {members} }}"


def action_set(*rows: tuple[ActionRow, int, int]) -> str:
    """Return an action set for `entry`: (action, weight, watch port) of each."""
    actions = " ".join(
        f"action_profile_actions {{ {action(*row)} weight: {weight}{_watch(port)} }}" for row, weight, port in rows
    )
    return f"action_profile_action_set {{ {actions} }}"


def to_group(id: int) -> str:
    """Return the reference to a group, for `entry`."""
    return f"action_profile_group_id: {id}"


def exact(value: int) -> str:
    """Return an exact key, for `entry`."""
    return f"match {{ field_id: 1 exact {{ value: {octets(value)} }} }}"


def prefix(value: int, length: int) -> str:
    """Return an lpm key, for `entry`."""
    return f"match {{ field_id: 1 lpm {{ value: {octets(value)} prefix_len: {length} }} }}"


def ternary(value: int, mask: int) -> str:
    """Return a ternary key with a priority, for `entry`."""
    return f"match {{ field_id: 1 ternary {{ value: {octets(value)} mask: {octets(mask)} }} }} priority: 3"


def entry(table: str, key: str, act: str = "", more: str = "") -> str:
    """A table entry that does what `act` says: an action, a reference, or nothing to delete it."""
    done = f"action {{ {act} }}" if act else ""
    return f"table_entry {{ table_id: @{table} {key} {done} {more} }}"


def clone_session(id: int, *replicas: tuple[int, int], packet_length_bytes: int = 0) -> str:
    """A clone session: (egress port, instance) of each copy."""
    copies = " ".join(f"replicas {{ egress_port: {port} instance: {instance} }}" for port, instance in replicas)
    cut = f" packet_length_bytes: {packet_length_bytes}" if packet_length_bytes else ""
    return f"packet_replication_engine_entry {{ clone_session_entry {{ session_id: {id} {copies}{cut} }} }}"

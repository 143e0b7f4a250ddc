"""Controls: graphs of tables, conditions and action calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.ir import build
from p4reduce_switch.program.ir.externs import ActionProfile
from p4reduce_switch.program.ir.flow import loop_heads
from p4reduce_switch.program.ir.intervals import Op
from p4reduce_switch.program.ir.places import FieldRef
from p4reduce_switch.program.ir.program import (
    RANKED,
    Action,
    Apply,
    Branch,
    Call,
    ConstEntry,
    Control,
    ControlNode,
    Key,
    KeyTest,
    MatchKind,
    Table,
)
from p4reduce_switch.program.load.expressions import Expressions
from p4reduce_switch.program.load.externs import Externs
from p4reduce_switch.program.load.layout import VALID, Layout, find, put
from p4reduce_switch.program.load.reader import MAX_BITS, MAX_NODES, MAX_PRIORITY, MAX_TABLE_SIZE, Place, shorten


@dataclass(frozen=True)
class Known:
    """The objects that tables and conditions refer to."""

    layout: Layout
    expressions: Expressions
    actions: Mapping[int, Action]
    externs: Externs


def load_control(config: Place, known: Known) -> Control:
    """Return one pipeline: ingress or egress."""
    places: dict[str, Place] = {}
    for kind in ("tables", "conditionals", "action_calls"):
        for item in config.rows(kind):
            put(places, item["name"], item)
    if len(places) > MAX_NODES:
        raise UnsupportedConstructError(f"a control of more than {MAX_NODES} tables and conditions")
    loader = _Nodes(known, {name: number for number, name in enumerate(places)})
    nodes: list[ControlNode] = [loader.table(item) for item in config["tables"].elements()]
    nodes += [loader.branch(item) for item in config["conditionals"].elements()]
    nodes += [loader.call(item) for item in config.rows("action_calls")]
    name = config["name"].name()
    control = Control(name, loader.next(config["init_table"]), tuple(nodes))
    if control.entry is not None:
        for head in loop_heads(control.entry, control.graph):
            raise UnsupportedConstructError(f"a loop in control {name} through {shorten(list(places)[head])}")
    return control


class _Nodes:
    """Loads nodes; `numbers` are the nodes' numbers by name."""

    def __init__(self, known: Known, numbers: dict[str, int]) -> None:
        self.known = known
        self.numbers = numbers

    def next(self, place: Place | None) -> int | None:
        """Return the node that a string names; None for null."""
        return None if place is None or place.is_null else find(self.numbers, place, "table or condition")

    def branch(self, item: Place) -> Branch:
        yes, no = self.next(item.get("true_next")), self.next(item.get("false_next"))
        condition = self.known.expressions.condition(item["expression"])
        return Branch(condition, yes, no, item["name"].text(), item.source())

    def call(self, item: Place) -> Call:
        action = self._action(item["action_id"])
        if action.parameters:
            item.fail("an action with parameters is called without a table")
        return Call(action, self.next(item["next_node"]))

    def _action(self, place: Place) -> Action:
        id = place.integer()
        if id not in self.known.actions:
            place.fail(f"there is no action {id}")
        return self.known.actions[id]

    # ---- tables

    def table(self, item: Place) -> Apply:
        name = item["name"]
        profile = self._profile(item)
        keys = tuple(self._key(key, name.name()) for key in item["key"].elements())
        actions = {id: self._action(place) for place in item["action_ids"].elements() for id in [place.integer()]}
        declared = item.get("default_entry")
        default = None if declared is None else self._run(declared)
        if default is not None:
            actions.setdefault(default[0].id, default[0])
        names = [action.name for action in actions.values()]
        if len(set(names)) < len(names):
            item.fail("two actions of the table have one name")
        meter = item.get("direct_meters")
        table = Table(
            name.text(),
            keys,
            item["max_size"].integer(0, MAX_TABLE_SIZE),
            tuple(actions.values()),
            default,
            declared is not None and declared.flag("action_const"),
            self._entries(item, keys, actions),
            item.flag("with_counters"),
            None if meter is None else find(self.known.externs.direct_meters, meter, "direct meter"),
            item.flag("support_timeout"),
            profile,
            item.source(),
        )
        if profile is not None and table.entries:
            raise UnsupportedConstructError(
                f"entries that the program declares in table {name.name()}, which has a profile"
            )
        return self._apply(item, table)

    def _profile(self, item: Place) -> ActionProfile | None:
        """Return the action profile of a table; None for a table with direct actions."""
        kind = item["type"].text()
        if kind == "simple":
            return None
        if kind not in ("indirect", "indirect_ws"):
            raise UnsupportedConstructError(f"table {item['name'].name()} of type {item['type'].name()}")
        profile = find(self.known.externs.action_profiles, item["action_profile"], "action profile")
        if (profile.selector is not None) != (kind == "indirect_ws"):
            item.fail("a table of type indirect_ws has an action profile with a selector, one of type indirect without")
        return profile

    def _apply(self, item: Place, table: Table) -> Apply:
        following = {name: self.next(place) for name, place in item["next_tables"].members()}
        base = self.next(item.get("base_default_next"))
        if "__HIT__" in following or "__MISS__" in following:
            hit, miss = following.get("__HIT__"), following.get("__MISS__")
            return Apply(table, (hit,) * len(table.actions), (miss,) * len(table.actions), miss, hit)
        after = tuple(following.get(action.name, base) for action in table.actions)
        return Apply(table, after, after, base, base)

    def _key(self, key: Place, table: str) -> Key:
        kind = key["match_type"].text()
        if kind == "valid":
            header = self.known.layout.header(key["target"])
            return Key(self._key_name(key, [key["target"].text()]), MatchKind.EXACT, 1, build.validity(header))
        if kind not in tuple(MatchKind):
            raise UnsupportedConstructError(f"match kind {key['match_type'].name()} of table {table}")
        if key["target"].is_object:  # BMv2 rejects it too
            raise UnsupportedConstructError(f"a key of table {table} in a stack element whose index is not a constant")
        header_place, field_place = key["target"].pair()
        name = self._key_name(key, [header_place.text(), field_place.text()])
        if field_place.text() == VALID:
            value, bits = build.validity(self.known.layout.header(header_place)), 1
        else:
            field: FieldRef = self.known.layout.field(key["target"])
            if field.type.varbit:
                key.fail("a varbit field as a key")
            bits = field.type.width
            value = build.cut(build.field_value(field), bits, False)
        mask = key.get("mask")
        if mask is not None:
            value = build.binary(Op.AND, value, build.constant(mask.natural(MAX_BITS)))
        return Key(name, MatchKind(kind), bits, value)

    def _key_name(self, key: Place, target: list[str]) -> str:
        name = key.get("name")
        return ".".join(target) if name is None or not name.text() else name.text()

    def _run(self, place: Place) -> tuple[Action, tuple[int, ...]]:
        """Return an action and its arguments."""
        action = self._action(place["action_id"])
        data = place["action_data"].several(len(action.parameters))
        widths = [width for _, width in action.parameters]
        return action, tuple(item.natural(width) for item, width in zip(data, widths, strict=True))

    def _entries(self, item: Place, keys: tuple[Key, ...], actions: Mapping[int, Action]) -> tuple[ConstEntry, ...]:
        """Load a table's entries. In the JSON the smallest priority wins, in the IR the largest."""
        declared = item.rows("entries")
        given = [entry.get("priority") for entry in declared]
        priorities = [0 if place is None else place.integer(0, MAX_PRIORITY) for place in given]
        highest = max(priorities, default=0)
        ranked = any(key.kind in RANKED for key in keys)
        found = []
        for entry, priority in zip(declared, priorities, strict=True):
            action, arguments = self._run(entry["action_entry"])
            if action.id not in actions:
                entry.fail("the entry has an action that the table has not")
            parts = entry["match_key"].several(len(keys))
            match = tuple(_const_match(part, key) for part, key in zip(parts, keys, strict=True))
            found.append(ConstEntry(match, highest + 1 - priority if ranked else 0, action, arguments))
        return tuple(found)


def _const_match(part: Place, key: Key) -> KeyTest:
    """Return the test of one key of a const entry."""
    kind = part["match_type"].text()
    if kind == "valid" and key.kind is MatchKind.EXACT:
        value = part["key"].value
        return KeyTest.of(kind, 1, int(value) if type(value) is bool else part["key"].integer(0, 1))
    if kind not in tuple(MatchKind):
        raise UnsupportedConstructError(f"const entry with match kind {part['match_type'].name()}")
    if kind != key.kind:
        part.fail(f"a match of kind {kind} for a key of kind {key.kind.value}")
    given: Any
    match key.kind:
        case MatchKind.EXACT:
            given = part["key"].natural(key.bits)
        case MatchKind.LPM:
            given = part["key"].natural(key.bits), part["prefix_length"].integer(0, key.bits)
        case MatchKind.RANGE:
            given = low, high = part["start"].natural(key.bits), part["end"].natural(key.bits)
            if low > high:
                part.fail("an empty range")
        case MatchKind.TERNARY:
            given = part["key"].natural(key.bits), part["mask"].natural(key.bits)
        case _:
            given = part["key"].natural(key.bits) if part["mask"].natural(key.bits) else None
    return KeyTest.of(kind, key.bits, given)

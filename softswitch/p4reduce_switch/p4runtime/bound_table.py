"""A table of the program and what P4Info says about it: requests in, the program's match tuples out, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from p4reduce_contracts.p4runtime.schema import ActionInfo, Directory, FieldInfo, TableInfo
from p4reduce_switch.p4runtime.action_codec import Call, call_of, put_call
from p4reduce_switch.p4runtime.action_profiles import BoundProfile
from p4reduce_switch.p4runtime.bits import check_sized
from p4reduce_switch.p4runtime.match_keys import put_key, value_of_key
from p4reduce_switch.p4runtime.status import Code, Refused, invalid
from p4reduce_switch.program import Entry, EntryMissing, Table

Identity = tuple[tuple[Any, ...], int]
"""What names an entry in a table: the match tuple of the program and the priority."""


class BoundTable:
    """A table that both sides know. `keys` is in the program's order.

    p4c writes optional keys into the BMv2 JSON as ternary ones; requests and answers have P4Info's kinds.
    """

    def __init__(
        self,
        info: TableInfo,
        table: Table,
        actions: Directory[ActionInfo],
        profiles: Mapping[int, BoundProfile],
    ) -> None:
        """INVALID_ARGUMENT when they are not of one program."""
        self.info = info
        self.table = table
        self.profile = profiles.get(info.profile_id)
        missing = bool(info.profile_id) and self.profile is None
        if missing or table.profile is not (None if self.profile is None else self.profile.state):
            invalid(f"p4info and program do not belong together: the action profile of table {info.name} differs")
        self.keys = _key_order(info, table)
        self.metadata: dict[Identity | None, tuple[int, bytes]] = {}
        """Opaque (controller_metadata, metadata) of entries that have any; None stands for the default entry."""
        self._actions = actions
        if table.const and not info.const:
            table.allow_changes(max(info.size, table.max_size))
        self._key_ids = {key.id for key in info.keys}
        self._as_ternary = tuple(
            key.kind == "optional" and stored.match_type == "ternary"
            for key, stored in zip(self.keys, table.keys, strict=True)
        )
        for action_id in info.action_ids:
            name = actions.by_id[action_id].name
            if name not in table.action_params:
                invalid(f"p4info and program do not belong together: table {info.name} has no action {name}")

    def identity_of(self, request: Any) -> Identity:
        """Return match and priority of a request in the program's form, checked as the spec says ("Match Format")."""
        given = {field.field_id: field for field in request.match}
        if len(given) != len(request.match):
            invalid("a key is given twice")
        unknown = set(given) - self._key_ids
        if unknown:
            invalid(f"table {self.info.name} has no key with id {min(unknown)}")
        if request.priority < 0 or self.info.needs_priority != bool(request.priority):
            needs = "needs a priority above 0" if self.info.needs_priority else "takes no priority"
            invalid(f"table {self.info.name} {needs}")
        for key in self.keys:
            check_sized(key)
        where = f"table {self.info.name}"
        values = (value_of_key(key, given.get(key.id), where) for key in self.keys)
        return self._to_executor(values), request.priority

    def existing(self, identity: Identity) -> Entry:
        """Return the program's entry; NOT_FOUND when there is none."""
        try:
            return self.table.entry(*identity)
        except EntryMissing:
            raise Refused(Code.NOT_FOUND, f"table {self.info.name} has no such entry") from None

    def put_identity(self, entry: Entry, out: Any) -> None:
        """Write table id, match and priority into an answer; keys that match everything are left out."""
        out.table_id = self.info.id
        out.priority = entry.priority
        for key, value in self._from_executor(entry.match):
            put_key(key, value, out)

    def action_of(self, request: Any, *, default: bool = False) -> Call:
        """Return the name and the parameters in order of a request's action, checked ("Action Specification")."""
        if request.action.WhichOneof("type") != "action":
            invalid(f"table {self.info.name} takes a direct action, no action profile")
        barred = self.info.entry_only if default else self.info.default_only
        where = f"table {self.info.name}"
        return call_of(request.action.action, self._actions, self.info.action_ids, barred, where)

    def put_action(self, name: str, params: tuple[int, ...], out: Any) -> None:
        """Write an action into an answer; a default action that P4Info does not list is left out."""
        if name in self._actions:
            put_call(name, params, self._actions, out.action.action)

    def put_entry_action(self, entry: Entry, out: Any) -> None:
        """Write an entry's action, or what it refers to, into an answer."""
        if self.profile is not None and entry.target is not None:
            self.profile.put_target(entry.target, out.action)
        else:
            self.put_action(entry.action, entry.params, out)

    def _to_executor(self, values: Iterable[Any]) -> tuple[Any, ...]:
        """Match values of P4Info's kinds in the program's kinds."""
        return tuple(
            value if not ternary else (0, 0) if value is None else (value, (1 << key.bitwidth) - 1)
            for key, value, ternary in zip(self.keys, values, self._as_ternary, strict=True)
        )

    def _from_executor(self, match: Iterable[Any]) -> Iterator[tuple[FieldInfo, Any]]:
        """Each key with its value in P4Info's kind; None for an optional key that matches all."""
        for key, value, ternary in zip(self.keys, match, self._as_ternary, strict=True):
            yield key, value if not ternary else value[0] if value[1] else None


def _key_order(info: TableInfo, table: Table) -> tuple[FieldInfo, ...]:
    """P4Info's keys in the program's order: by name, or by place when a name is annotated in only one of them.

    A key whose type P4Runtime translates to another number has the program's width: a value stands for itself.
    """
    names = [key.name for key in table.keys]
    by_name = {key.name: key for key in info.keys}
    ordered = tuple(by_name[name] for name in names) if set(names) == set(by_name) else info.keys
    for key, stored in zip(ordered, table.keys, strict=False):
        same_kind = key.kind == stored.match_type or (key.kind, stored.match_type) == ("optional", "ternary")
        if not same_kind or (key.bitwidth != stored.bitwidth and not key.own_type):
            invalid(f"p4info and program do not belong together: key {key.name} of table {info.name} differs")
    if len(ordered) != len(table.keys):
        invalid(f"p4info and program do not belong together: the keys of table {info.name} differ")
    return tuple(
        replace(key, bitwidth=stored.bitwidth) if key.bitwidth else key
        for key, stored in zip(ordered, table.keys, strict=True)
    )

"""Action profiles: members, and groups of members, that table entries refer to.

The selection of a group's member is that of BMv2. Its P4Runtime server assigns a member the lowest free handle, and one
more for each unit of weight in a group beyond the first; a group is the set of its members' handles, and the hash
modulo their number is an index into the handles in order.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from p4reduce_switch.program.errors import (
    MixedUseError,
    ProfileFullError,
    TargetExistsError,
    TargetInUseError,
    TargetMissingError,
)

MAX_CHOICES = 1 << 16
"""The maximum total weight of a group, whatever the program allows: each unit of weight takes memory."""
HASH_MASK = (1 << 32) - 1
"""The bits of a hash that select a member."""

Call = tuple[str, tuple[int, ...]]
"""An action's name and its arguments."""


@dataclass(frozen=True)
class MemberRef:
    """A reference to a member."""

    member: int


@dataclass(frozen=True)
class GroupRef:
    """A reference to a group."""

    group: int


@dataclass(frozen=True)
class WeightedAction:
    """An action of an ActionSet; it is not selected while its watch port is down."""

    action: str
    params: tuple[int, ...]
    weight: int = 1
    watch_port: int | None = None


@dataclass(frozen=True)
class ActionSet:
    """An action set (one-shot action selector programming): a group of the entry's own."""

    actions: tuple[WeightedAction, ...]


Target = MemberRef | GroupRef | ActionSet
"""The target of an entry of a table with an action profile."""


@dataclass(frozen=True)
class Member:
    """An action with its arguments."""

    id: int
    action: str
    params: tuple[int, ...]


@dataclass(frozen=True)
class Share:
    """A member of a group; it is not selected while its watch port is down."""

    member: int
    weight: int = 1
    watch_port: int | None = None


Weighted = Share | WeightedAction


@dataclass(frozen=True)
class Group:
    """A group of members. `max_size` is the maximum sum of weights, 0 for no limit of its own."""

    id: int
    shares: tuple[Share, ...]
    max_size: int = 0


@dataclass(eq=False)
class Choices:
    """The calls among which a hash selects, in order. Compared by identity."""

    calls: list[Call] = field(default_factory=list)
    users: int = 0
    """The number of entries that refer to it."""


class Listener(Protocol):
    """A table whose entries refer to a profile."""

    def choices_changed(self, choices: Choices) -> None:
        """The calls of `choices` have changed."""

    def choices_removed(self, choices: Choices) -> None:
        """`choices` are not used any more."""


@dataclass(eq=False)
class _Member:
    shown: Member
    handles: list[int]
    alone: Choices
    groups: set[int] = field(default_factory=set)


@dataclass(eq=False)
class _Group:
    shown: Group
    choices: Choices = field(default_factory=Choices)


class ActionProfile:
    """An action profile, or with `has_selector` an action selector. An id below 1 is a ValueError."""

    def __init__(self, name: str, max_size: int, has_selector: bool) -> None:
        self.name = name
        self.max_size = max_size
        self.has_selector = has_selector
        self.counts_members = False
        """Whether `max_size` and sizes of groups count members; weights otherwise."""
        self._tables: list[Listener] = []
        self._members: dict[int, _Member] = {}
        self._groups: dict[int, _Group] = {}
        self._sets: dict[Choices, ActionSet] = {}
        self._down: set[int] = set()
        self._size = 0
        self._free: list[int] = []
        self._top = 0

    def attach(self, table: Listener) -> None:
        """Add a table that refers to this profile."""
        self._tables.append(table)

    # ---- members

    def members(self) -> Iterator[Member]:
        """Return all members in the order of insertion."""
        return iter([member.shown for member in self._members.values()])

    def member(self, id: int) -> Member:
        """Return the member of an id; TargetMissingError if there is none."""
        return self._member(id).shown

    def insert_member(self, id: int, action: str, params: tuple[int, ...]) -> None:
        """Add a member. ValueError for an invalid id, ProfileErrors."""
        self._check_id(id)
        self._check_manual()
        if id in self._members:
            raise TargetExistsError(f"action profile {self.name} already has a member {id}")
        if self.max_size and len(self._members) >= self.max_size:
            raise ProfileFullError(f"action profile {self.name} holds {self.max_size} members and is full")
        self._members[id] = _Member(Member(id, action, params), [self._take_handle()], Choices([(action, params)]))

    def modify_member(self, id: int, action: str, params: tuple[int, ...]) -> None:
        """Change the action of a member, in all its uses."""
        member = self._member(id)
        member.shown = Member(id, action, params)
        member.alone.calls[:] = [(action, params)]
        self._tell(member.alone)
        for group in sorted(member.groups):
            self._rebuild(group)

    def delete_member(self, id: int) -> None:
        """Remove a member; TargetInUseError if a group or an entry refers to it."""
        member = self._member(id)
        if member.groups:
            raise TargetInUseError(f"member {id} of action profile {self.name} is in group {min(member.groups)}")
        if member.alone.users:
            raise TargetInUseError(f"member {id} of action profile {self.name} is used by {member.alone.users} entries")
        del self._members[id]
        self._release(member, 0)
        self._forget(member.alone)

    # ---- groups

    def groups(self) -> Iterator[Group]:
        """Return all groups in the order of insertion."""
        return iter([group.shown for group in self._groups.values()])

    def group(self, id: int) -> Group:
        """Return the group of an id; TargetMissingError if there is none."""
        return self._group(id).shown

    def insert_group(self, group: Group) -> None:
        """Add a group of existing members. ValueError for invalid ids and sizes."""
        self._check_id(group.id)
        self._check_manual()
        if group.id in self._groups:
            raise TargetExistsError(f"action selector {self.name} already has a group {group.id}")
        self._check_group(group, ())
        self._groups[group.id] = _Group(Group(group.id, (), group.max_size))
        self._set_shares(group)

    def modify_group(self, group: Group) -> None:
        """Change the members of a group; its `max_size` stays."""
        known = self._group(group.id).shown
        if group.max_size != known.max_size:
            raise ValueError(f"group {group.id} has max_size {known.max_size}, which does not change")
        self._check_group(group, known.shares)
        self._set_shares(group)

    def delete_group(self, id: int) -> None:
        """Remove a group; TargetInUseError if an entry refers to it."""
        group = self._group(id)
        if group.choices.users:
            raise TargetInUseError(
                f"group {id} of action selector {self.name} is used by {group.choices.users} entries"
            )
        del self._groups[id]
        self._size -= self._size_of(group.shown.shares)
        for share in sorted(group.shown.shares, key=_member_of):
            self._members[share.member].groups.discard(id)
            self._purge(self._members[share.member])
        self._forget(group.choices)

    def set_port(self, port: int, up: bool) -> None:
        """Set the link state of a port; members that watch a port that is down are not selected."""
        changed = (port in self._down) == up
        (self._down.discard if up else self._down.add)(port)
        if not changed:
            return
        for id, group in self._groups.items():
            if any(share.watch_port == port for share in group.shown.shares):
                self._rebuild(id)
        for choices, actions in self._sets.items():
            if any(weighted.watch_port == port for weighted in actions.actions):
                self._fill_set(choices, actions)

    # ---- references of entries

    def refer(self, target: Target, instead_of: Choices | None = None) -> Choices:
        """Count an entry that refers to a target. Return the target's choices, one object as long as the target exists.

        `instead_of` is the entry's former target. TargetMissingError for an unknown id; MixedUseError, ProfileFullError
        and ValueError for an action set.
        """
        if isinstance(target, ActionSet):
            choices = self._new_set(target, instead_of)
        elif isinstance(target, MemberRef):
            choices = self._member(target.member).alone
        else:
            choices = self._group(target.group).choices
        choices.users += 1
        if instead_of is not None:
            self.release(instead_of)
        return choices

    def release(self, choices: Choices) -> None:
        """Count one entry less that refers to a target."""
        choices.users -= 1
        if choices in self._sets and not choices.users:
            self._size -= self._size_of(self._sets.pop(choices).actions)
            self._forget(choices)

    # ---- action sets

    def _new_set(self, actions: ActionSet, instead_of: Choices | None) -> Choices:
        if self._members or self._groups:
            raise MixedUseError(f"action selector {self.name} has members or groups, so its tables take no action sets")
        before = self._sets.get(instead_of) if instead_of is not None else None
        self._check_weights(actions.actions, 0, () if before is None else before.actions)
        choices = Choices()
        self._sets[choices] = actions
        self._size += self._size_of(actions.actions)
        self._fill_set(choices, actions)
        return choices

    def _fill_set(self, choices: Choices, actions: ActionSet) -> None:
        choices.calls[:] = [
            (weighted.action, weighted.params)
            for weighted in actions.actions
            if weighted.watch_port not in self._down
            for _ in range(weighted.weight)
        ]
        self._tell(choices)

    # ---- handles

    def _take_handle(self) -> int:
        if self._free:
            return heapq.heappop(self._free)
        self._top += 1
        return self._top - 1

    def _release(self, member: _Member, keep: int) -> None:
        while len(member.handles) > keep:
            heapq.heappush(self._free, member.handles.pop())

    def _purge(self, member: _Member) -> None:
        """Release handles that no group uses any more."""
        weights = [
            share.weight
            for id in member.groups
            for share in self._groups[id].shown.shares
            if share.member == member.shown.id
        ]
        self._release(member, max([1, *weights]))

    def _set_shares(self, group: Group) -> None:
        known = self._groups[group.id]
        before, now = ({share.member: share for share in shown.shares} for shown in (known.shown, group))
        touched = [self._members[id] for id in sorted({*before, *now})]
        for member in touched:
            share = now.get(member.shown.id)
            while share is not None and len(member.handles) < share.weight:
                member.handles.append(self._take_handle())
            (member.groups.discard if share is None else member.groups.add)(group.id)
        self._size += self._size_of(group.shares) - self._size_of(known.shown.shares)
        known.shown = group
        for member in touched:
            self._purge(member)
        self._rebuild(group.id)

    def _rebuild(self, id: int) -> None:
        group = self._groups[id]
        handles = [
            (handle, (member.shown.action, member.shown.params))
            for share in group.shown.shares
            if share.watch_port not in self._down
            for member in [self._members[share.member]]
            for handle in member.handles[: share.weight]
        ]
        group.choices.calls[:] = [call for _, call in sorted(handles)]
        self._tell(group.choices)

    def _tell(self, choices: Choices) -> None:
        for table in self._tables:
            table.choices_changed(choices)

    def _forget(self, choices: Choices) -> None:
        for table in self._tables:
            table.choices_removed(choices)

    # ---- checks

    def _member(self, id: int) -> _Member:
        if id not in self._members:
            raise TargetMissingError(f"action profile {self.name} has no member {id}")
        return self._members[id]

    def _group(self, id: int) -> _Group:
        if id not in self._groups:
            raise TargetMissingError(f"action profile {self.name} has no group {id}")
        return self._groups[id]

    def _check_id(self, id: int) -> None:
        if not 0 < id < 1 << 32:
            raise ValueError(f"a member or group has an id of 32 bits above 0, not {id}")

    def _check_manual(self) -> None:
        if self._sets:
            raise MixedUseError(
                f"action selector {self.name} has entries with action sets, so it takes no members and groups"
            )

    def _check_group(self, group: Group, before: Sequence[Share]) -> None:
        for share in group.shares:
            self._member(share.member)
        twice = [id for id, count in Counter(share.member for share in group.shares).items() if count > 1]
        if twice:
            raise ValueError(f"member {min(twice)} is in group {group.id} twice; give it a weight instead")
        self._check_weights(group.shares, group.max_size, before)

    def _check_weights(self, now: Sequence[Weighted], max_size: int, before: Sequence[Weighted]) -> None:
        """Check the members of a group against its size and the profile's; `before` are its former members."""
        if max_size < 0:
            raise ValueError(f"the size of a group is not {max_size}")
        if sum(weighted.weight for weighted in now) > MAX_CHOICES:
            raise ProfileFullError(f"the weights of a group sum up to more than {MAX_CHOICES}")
        total = self._size_of(now)
        if max_size and total > max_size:
            raise ProfileFullError(f"the group has size {total}, more than {max_size}")
        if self.max_size and self._size - self._size_of(before) + total > self.max_size:
            raise ProfileFullError(
                f"the groups of action selector {self.name} would be larger than {self.max_size} together"
            )

    def _size_of(self, weighted: Sequence[Weighted]) -> int:
        return len(weighted) if self.counts_members else sum(part.weight for part in weighted)


def _member_of(share: Share) -> int:
    return share.member

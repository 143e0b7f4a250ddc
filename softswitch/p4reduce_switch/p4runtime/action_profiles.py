"""Action profiles and selectors: members, groups, and the table entries that refer to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime import bytestrings
from p4reduce_runtime.p4runtime.schema import ActionInfo, ActionProfileInfo, Directory, TableInfo
from p4reduce_switch.p4runtime.encoding import decode_action, encode_action
from p4reduce_switch.p4runtime.status import Code, RequestError, invalid_argument
from p4reduce_switch.program.packet import MAX_PORT
from p4reduce_switch.program.state.profiles import (
    ActionProfile,
    ActionSet,
    Call,
    Group,
    GroupRef,
    Member,
    MemberRef,
    Share,
    Target,
    WeightedAction,
)

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
Weighted: TypeAlias = p4r.ActionProfileGroup.Member | p4r.ActionProfileAction
"""A member of a group or of an action set: both have a weight and a watch port."""


class BoundProfile:
    """An action profile of the program bound to its P4Info."""

    def __init__(
        self, info: ActionProfileInfo, state: ActionProfile, tables: Iterable[TableInfo], actions: Directory[ActionInfo]
    ) -> None:
        """`tables` are those that refer to the profile; members may have their actions."""
        self.info = info
        self.state = state
        self._actions = actions
        tables = list(tables)
        self._allowed = {id for table in tables for id in table.action_ids}
        self._default_only = {id for table in tables for id in table.default_only}
        if info.has_selector != state.has_selector:
            invalid_argument(
                f"p4info and program do not belong together: {info.name} has a selector in only one of them"
            )
        state.counts_members = info.counts_members

    # ---- members

    def write_member(self, operation: p4r.Update.Type, request: p4r.ActionProfileMember) -> None:
        """Insert, modify or delete a member."""
        if operation == DELETE:
            self.state.delete_member(request.member_id)
            return
        if not request.HasField("action"):
            invalid_argument("a member needs an action")
        call = self._action_of(request.action)
        if operation == INSERT:
            self.state.insert_member(request.member_id, *call)
        else:
            self.state.modify_member(request.member_id, *call)

    def read_members(self, query: p4r.ActionProfileMember) -> Iterator[p4r.Entity]:
        """Yield the member that a query names, or all; none when there is no such member."""
        for member in self.state.members():
            if query.member_id in (0, member.id):
                yield self._member_entity(member)

    def _member_entity(self, member: Member) -> p4r.Entity:
        entity = p4r.Entity()
        out = entity.action_profile_member
        out.action_profile_id, out.member_id = self.info.id, member.id
        encode_action(member.action, member.params, self._actions, out.action)
        return entity

    def _action_of(self, action: p4r.Action) -> Call:
        return decode_action(
            action, self._actions, self._allowed, self._default_only, f"action profile {self.info.name}"
        )

    # ---- groups

    def write_group(self, operation: p4r.Update.Type, request: p4r.ActionProfileGroup) -> None:
        """Insert, modify or delete a group."""
        if not self.info.has_selector:
            invalid_argument(f"action profile {self.info.name} has no selector, so it has no groups")
        if operation == DELETE:
            self.state.delete_group(request.group_id)
            return
        if self.info.max_group_size and request.max_size > self.info.max_group_size:
            invalid_argument(f"max_size {request.max_size} is above the selector's {self.info.max_group_size}")
        shares = tuple(
            Share(member.member_id, self._weight_of(member), _watch_port_of(member)) for member in request.members
        )
        self._check_size(shares, Code.RESOURCE_EXHAUSTED)
        group = Group(request.group_id, shares, request.max_size)
        if operation == INSERT:
            self.state.insert_group(group)
        else:
            if not group.max_size:  # left out
                group = Group(group.id, shares, self.state.group(group.id).max_size)
            self.state.modify_group(group)

    def read_groups(self, query: p4r.ActionProfileGroup) -> Iterator[p4r.Entity]:
        """Yield the group that a query names, or all; none when there is no such group."""
        for group in self.state.groups():
            if query.group_id in (0, group.id):
                yield self._group_entity(group)

    def _group_entity(self, group: Group) -> p4r.Entity:
        entity = p4r.Entity()
        out = entity.action_profile_group
        out.action_profile_id, out.group_id, out.max_size = self.info.id, group.id, group.max_size
        for share in group.shares:
            _encode_watch_port(share.watch_port, out.members.add(member_id=share.member, weight=share.weight))
        return entity

    def _weight_of(self, weighted: Weighted) -> int:
        weight = int(weighted.weight)
        if weight < 1:
            invalid_argument("the weight of a member is at least 1")
        if 0 < self.info.max_member_weight < weight:
            invalid_argument(f"the weight {weight} of a member is above {self.info.max_member_weight}")
        return weight

    def _check_size(self, parts: tuple[Share, ...] | tuple[WeightedAction, ...], code: Code) -> None:
        size = len(parts) if self.info.counts_members else sum(part.weight for part in parts)
        if 0 < self.info.max_group_size < size:
            raise RequestError(
                code, f"a group of size {size} is larger than the selector's limit, {self.info.max_group_size}"
            )

    # ---- in table entries

    def target_of(self, request: p4r.TableAction) -> Target:
        """Return what a request's TableAction refers to."""
        kind = request.WhichOneof("type")
        if kind == "action_profile_member_id":
            return MemberRef(request.action_profile_member_id)
        if kind == "action_profile_group_id" and self.info.has_selector:
            return GroupRef(request.action_profile_group_id)
        if kind == "action_profile_action_set" and self.info.has_selector:
            return self._set_of(request.action_profile_action_set)
        takes = "members, groups or action sets" if self.info.has_selector else "members"
        invalid_argument(f"the tables of action profile {self.info.name} take {takes} of it")

    def _set_of(self, request: p4r.ActionProfileActionSet) -> ActionSet:
        if request.HasField("group_action") or request.action_selection_mode or request.size_semantics:
            raise RequestError(
                Code.UNIMPLEMENTED, "action sets have no group action, selection mode or size semantics here"
            )
        actions = tuple(
            WeightedAction(*self._action_of(given.action), self._weight_of(given), _watch_port_of(given))
            for given in request.action_profile_actions
        )
        self._check_size(actions, Code.INVALID_ARGUMENT)
        return ActionSet(actions)


def encode_target(target: Target, actions: Directory[ActionInfo], out: p4r.TableAction) -> None:
    """Write what an entry refers to into an answer's TableAction."""
    if isinstance(target, MemberRef):
        out.action_profile_member_id = target.member
    elif isinstance(target, GroupRef):
        out.action_profile_group_id = target.group
    else:
        out.action_profile_action_set.SetInParent()
        for weighted in target.actions:
            added = out.action_profile_action_set.action_profile_actions.add(weight=weighted.weight)
            encode_action(weighted.action, weighted.params, actions, added.action)
            _encode_watch_port(weighted.watch_port, added)


def _watch_port_of(request: Weighted) -> int | None:
    """Return the port that a member's liveness depends on, from either of its two fields; None for no port."""
    if request.WhichOneof("watch_kind") == "watch_port":
        port = bytestrings.decode(request.watch_port) if request.watch_port else 0
    else:
        port = request.watch
    if not 0 <= port <= MAX_PORT:
        invalid_argument(f"watch port {port} is not in 1..{MAX_PORT}")
    return port or None


def _encode_watch_port(port: int | None, out: Weighted) -> None:
    if port is not None:
        out.watch_port = bytestrings.encode(port, 32)

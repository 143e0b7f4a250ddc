"""Action profiles: what the control plane may do, and what lookups find afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from conformance.case import PROGRAMS
from p4reduce_switch.program import (
    ActionSet,
    EntryExistsError,
    Group,
    GroupRef,
    InvalidProgramError,
    Member,
    MemberRef,
    MixedUseError,
    ProfileFullError,
    Program,
    Share,
    TargetExistsError,
    TargetInUseError,
    TargetMissingError,
    UnsupportedConstructError,
    WeightedAction,
)
from p4reduce_switch.program.state import profiles

I = "MainIngress."  # noqa: E741
MEMBERS = I + "members"
SEND, MARK = I + "send", I + "mark"
ANY = ((0, 0),)
FRAME = bytes(4)


@pytest.fixture
def selector(load: Callable[[str], Program]) -> Program:
    """The selector program with members 1 to 3, which send to the port of their id."""
    program = load("action_selector")
    for id in (1, 2, 3):
        program.action_profiles[MEMBERS].insert_member(id, SEND, (id,))
    return program


def outcome(call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call returns, or the error that it raises."""
    try:
        return call(*arguments)
    except Exception as error:
        return type(error), str(error)


def ports(program: Program, count: int = 40) -> set[int]:
    """Where frames of several flows leave."""
    frames = (bytes((0, 0, 0, flow)) for flow in range(count))
    return {port for frame in frames for port, _ in program.process(1, frame)}


def test_members_are_read_as_they_were_written(selector: Program) -> None:
    profile = selector.action_profiles[MEMBERS]
    assert list(profile.members()) == [Member(id, SEND, (id,)) for id in (1, 2, 3)]
    profile.modify_member(2, MARK, (7,))
    assert profile.member(2) == Member(2, MARK, (7,))
    profile.delete_member(1)
    assert [member.id for member in profile.members()] == [2, 3]


def test_entries_follow_a_member_that_changes(selector: Program) -> None:
    profile, table = selector.action_profiles[MEMBERS], selector.tables[I + "t"]
    table.insert_reference(ANY, 0, MemberRef(1))
    assert ports(selector) == {1}
    profile.modify_member(1, SEND, (5,))
    assert ports(selector) == {5}
    table.modify_reference(ANY, 0, MemberRef(2))
    assert ports(selector) == {2}
    (entry,) = table.entries()
    assert (entry.target, entry.action, entry.packets) == (MemberRef(2), "", 120)


def test_groups_choose_among_their_members(selector: Program) -> None:
    profile, table = selector.action_profiles[MEMBERS], selector.tables[I + "t"]
    profile.insert_group(Group(1, (Share(1), Share(3, 2)), 4))
    table.insert_reference(ANY, 0, GroupRef(1))
    assert ports(selector) == {1, 3}
    profile.modify_member(3, SEND, (9,))
    assert ports(selector) == {1, 9}
    profile.modify_group(Group(1, (Share(2),), 4))
    assert ports(selector) == {2}
    assert list(profile.groups()) == [profile.group(1)] == [Group(1, (Share(2),), 4)]


def test_an_empty_group_runs_no_action(selector: Program) -> None:
    profile, table = selector.action_profiles[MEMBERS], selector.tables[I + "t"]
    profile.insert_group(Group(1, ()))
    table.insert_reference(ANY, 0, GroupRef(1))
    assert selector.process(1, FRAME) == [(0, FRAME)], "as without an entry"
    assert next(table.entries()).packets == 1, "but it was a hit"
    profile.modify_group(Group(1, (Share(1, 1, 8),)))
    profile.set_port(8, False)
    assert ports(selector) == {0}
    profile.set_port(8, True)
    assert ports(selector) == {1}


def test_an_empty_group_counts_as_a_hit() -> None:
    """By the action that ran: none did, so no case; by hit: it was one. BMv2 leaves both open."""
    for name, follows in (("action_run_profile", bytes((1, 0, 0))), ("action_profile", bytes((0xF1, 0xF0, 0)))):
        config = json.loads((PROGRAMS / f"{name}.json").read_text())
        (pipeline,) = (p for p in config["pipelines"] if p["action_profiles"])
        scalar = {"type": "field", "value": ["h", "a"]}
        pipeline["action_profiles"][0]["selector"] = {"algo": "crc16", "input": [scalar]}
        for table in pipeline["tables"]:
            if table["type"] == "indirect":
                table["type"] = "indirect_ws"
        program = Program(config)
        (profile,) = program.action_profiles.values()
        profile.insert_group(Group(1, ()))
        first = next(table for table in program.tables.values() if table.profile is not None)
        first.insert_reference((1,), 0, GroupRef(1))
        assert [frame for _, frame in program.process(1, bytes((1, 0, 0)))] == [follows]


def test_an_action_set_is_a_group_of_its_own(load: Callable[[str], Program]) -> None:
    program = load("action_selector")
    profile, table = program.action_profiles[MEMBERS], program.tables[I + "t"]
    actions = ActionSet((WeightedAction(SEND, (4,), 2, 6), WeightedAction(SEND, (5,))))
    table.insert_reference(ANY, 0, actions)
    assert ports(program) == {4, 5}
    assert next(table.entries()).target == actions
    assert not list(profile.members()) and not list(profile.groups())
    profile.set_port(6, False)
    assert ports(program) == {5}
    profile.set_port(6, True)
    with pytest.raises(MixedUseError):
        profile.insert_member(1, SEND, (1,))
    with pytest.raises(MixedUseError):
        profile.insert_group(Group(1, ()))
    table.modify_reference(ANY, 0, ActionSet((WeightedAction(SEND, (7,)),)))
    assert ports(program) == {7}
    table.delete(ANY, 0)
    profile.insert_member(1, SEND, (1,))
    with pytest.raises(MixedUseError):
        table.insert_reference(ANY, 0, actions)


def test_members_and_groups_in_use_cannot_be_deleted(selector: Program) -> None:
    profile, table = selector.action_profiles[MEMBERS], selector.tables[I + "t"]
    profile.insert_group(Group(1, (Share(1),)))
    table.insert_reference(ANY, 0, GroupRef(1))
    table.insert_reference(((0x10, 4),), 0, MemberRef(2))
    for delete, id, message in (
        (profile.delete_member, 1, "in group 1"),
        (profile.delete_member, 2, "used by 1 entries"),
        (profile.delete_group, 1, "used by 1 entries"),
    ):
        with pytest.raises(TargetInUseError, match=message):
            delete(id)
    table.delete(ANY, 0)
    table.modify_reference(((0x10, 4),), 0, MemberRef(3))
    profile.delete_group(1)
    profile.delete_member(1)
    profile.delete_member(2)
    assert ports(selector) == {0}


def test_bad_members_and_groups(selector: Program) -> None:
    profile, table = selector.action_profiles[MEMBERS], selector.tables[I + "t"]
    with pytest.raises(TargetExistsError):
        profile.insert_member(1, SEND, (1,))
    with pytest.raises(KeyError, match="has no action nothing"):
        profile.insert_member(9, "nothing", ())
    with pytest.raises(ValueError, match="does not fit 9 bits"):
        profile.modify_member(1, SEND, (512,))
    with pytest.raises(ValueError, match="32 bits above 0"):
        profile.insert_member(0, SEND, (1,))
    for call in (profile.delete_member, profile.member, profile.delete_group, profile.group):
        with pytest.raises(TargetMissingError):
            call(77)
    for shares, error, message in (
        ((Share(8),), TargetMissingError, "no member 8"),
        ((Share(1), Share(1)), ValueError, "twice"),
        ((Share(1, 0),), ValueError, "at least 1"),
        ((Share(1, 5),), ProfileFullError, "more than 4"),
        ((Share(1, 70_000),), ProfileFullError, "more than 65536"),
    ):
        with pytest.raises(error, match=message):
            profile.insert_group(Group(1, shares, 4))
    assert not list(profile.groups()), "nothing of a refused group is left"
    profile.insert_group(Group(1, (Share(1),), 4))
    with pytest.raises(TargetExistsError):
        profile.insert_group(Group(1, (), 4))
    with pytest.raises(ValueError, match="does not change"):
        profile.modify_group(Group(1, (), 5))
    with pytest.raises(TargetMissingError):
        table.insert_reference(ANY, 0, GroupRef(2))
    with pytest.raises(ValueError, match="refer to members"):
        table.insert(ANY, 0, SEND, (1,))
    table.insert_reference(ANY, 0, GroupRef(1))
    with pytest.raises(TargetMissingError):
        table.modify_reference(ANY, 0, MemberRef(9))
    assert ports(selector) == {1}, "a refused write changes nothing"
    with pytest.raises(EntryExistsError):
        table.insert_reference(ANY, 0, MemberRef(2))
    profile.delete_member(2)  # which the refused entry does not use


def test_a_full_profile(load: Callable[[str], Program]) -> None:
    profile = load("action_run_profile").action_profiles["members"]
    for id in range(1, 5):
        profile.insert_member(id, SEND, (id,))
    with pytest.raises(ProfileFullError, match="holds 4 members"):
        profile.insert_member(5, SEND, (5,))
    with pytest.raises(ValueError, match="has no selector"):
        profile.insert_group(Group(1, ()))


def test_a_full_selector(selector: Program) -> None:
    """Its size, 128, is of the weights of all groups together, or of all action sets."""
    profile, table = selector.action_profiles[MEMBERS], selector.tables[I + "t"]
    profile.insert_group(Group(1, (Share(1, 100),)))
    with pytest.raises(ProfileFullError, match="larger than 128"):
        profile.insert_group(Group(2, (Share(1, 29),)))
    profile.insert_group(Group(2, (Share(1, 28),)))
    profile.modify_group(Group(1, (Share(1, 99),)))
    profile.delete_group(2)
    profile.delete_group(1)
    for id in (1, 2, 3):
        profile.delete_member(id)
    table.insert_reference(ANY, 0, ActionSet((WeightedAction(SEND, (1,), 100),)))
    with pytest.raises(ProfileFullError):
        table.insert_reference(((0x10, 4),), 0, ActionSet((WeightedAction(SEND, (1,), 29),)))
    table.modify_reference(ANY, 0, ActionSet((WeightedAction(SEND, (2,), 128),)))
    assert ports(selector) == {2}


def test_sizes_in_sum_of_members_are_enforced(selector: Program) -> None:
    profile = selector.action_profiles[MEMBERS]
    profile.counts_members = True
    profile.insert_group(Group(1, (Share(1, 4000), Share(2, 4000)), 2))
    with pytest.raises(ProfileFullError, match="size 3"):
        profile.insert_group(Group(2, (Share(1), Share(2), Share(3)), 2))
    with pytest.raises(ProfileFullError, match="65536"):
        profile.insert_group(Group(2, (Share(1, 70_000),)))


def test_handles_are_given_lowest_first() -> None:
    """As BMv2's P4Runtime server does: the order of a group's members is that of their handles."""
    profile = profiles.ActionProfile("p", 0, True)
    profile.action_params = {"a": [("id", 8)]}

    def calls() -> list[int]:
        choices = profile.refer(GroupRef(1))
        profile.release(choices)
        return [params[0] for _, params in choices.calls]

    for id in (5, 3, 4):
        profile.insert_member(id, "a", (id,))
    profile.insert_group(Group(1, (Share(3), Share(4), Share(5))))
    assert calls() == [5, 3, 4]
    profile.modify_group(Group(1, (Share(3, 2), Share(4), Share(5, 2))))
    assert calls() == [5, 3, 4, 3, 5], "extra handles by rising id"
    profile.modify_group(Group(1, (Share(4), Share(5))))
    profile.delete_member(3)
    profile.insert_member(9, "a", (9,))
    profile.modify_group(Group(1, (Share(4), Share(5), Share(9))))
    assert calls() == [5, 9, 4], "9 has taken the handle of 3"


def test_programs_with_malformed_profiles(config: Callable[[str], dict[str, Any]]) -> None:
    def changed(change: Callable[[dict[str, Any], dict[str, Any]], None]) -> dict[str, Any]:
        program = config("action_selector")
        ingress = program["pipelines"][0]
        change(ingress, next(table for table in ingress["tables"] if table["name"] == I + "t"))
        return program

    with pytest.raises(InvalidProgramError, match="action profile"):
        Program(changed(lambda ingress, table: table.update(action_profile="nothing")))
    with pytest.raises(InvalidProgramError, match="indirect_ws"):
        Program(changed(lambda ingress, table: table.update(type="indirect")))
    with pytest.raises(UnsupportedConstructError, match="of type magic"):
        Program(changed(lambda ingress, table: table.update(type="magic")))
    with pytest.raises(UnsupportedConstructError, match="hash algorithm dice"):
        Program(changed(lambda ingress, table: ingress["action_profiles"][0]["selector"].update(algo="dice")))

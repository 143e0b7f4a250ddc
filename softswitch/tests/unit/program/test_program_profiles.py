"""Action profiles: what the control plane may do, and what lookups find afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from conformance.case import PROGRAMS
from p4reduce_switch.program import InvalidProgramError, Program, UnsupportedConstructError
from p4reduce_switch.program.errors import ProfileFullError
from p4reduce_switch.program.state.profiles import ActionSet, Group, GroupRef, Share, WeightedAction
from rigs.entries import match_of

I = "MainIngress."  # noqa: E741
MEMBERS = I + "members"
SEND, MARK = I + "send", I + "mark"
ANY = (0, 0)
FRAME = bytes(4)


@pytest.fixture
def selector(load: Callable[[str], Program]) -> Program:
    """The selector program with members 1 to 3, which send to the port of their id."""
    program = load("action_selector")
    for id in (1, 2, 3):
        program.action_profiles[MEMBERS].insert_member(id, SEND, (id,))
    return program


def ports(program: Program, count: int = 40) -> set[int]:
    """Return the ports where frames of several flows leave."""
    frames = (bytes((0, 0, 0, flow)) for flow in range(count))
    return {port for frame in frames for port, _ in program.process(1, frame)}


def test_an_empty_group_runs_no_action(selector: Program) -> None:
    profile, table = selector.action_profiles[MEMBERS], selector.tables[I + "t"]
    profile.insert_group(Group(1, ()))
    table.insert(match_of(table, ANY), 0, GroupRef(1))
    assert selector.process(1, FRAME) == [(0, FRAME)], "as without an entry"
    assert next(table.entries()).packets == 1, "but it was a hit"
    profile.modify_group(Group(1, (Share(1, 1, 8),)))
    profile.set_port(8, False)
    assert ports(selector) == {0}
    profile.set_port(8, True)
    assert ports(selector) == {1}


def test_an_empty_group_counts_as_a_hit() -> None:
    """A switch on the action that ran takes no case, since none ran; one on the hit takes it. BMv2 leaves both open."""
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
        first.insert(match_of(first, 1), 0, GroupRef(1))
        assert [frame for _, frame in program.process(1, bytes((1, 0, 0)))] == [follows]


def test_a_full_profile(load: Callable[[str], Program]) -> None:
    profile = load("action_run_profile").action_profiles["members"]
    for id in range(1, 5):
        profile.insert_member(id, SEND, (id,))
    with pytest.raises(ProfileFullError, match="holds 4 members"):
        profile.insert_member(5, SEND, (5,))


def test_a_full_selector(selector: Program) -> None:
    """Its size, 128, limits the weights of all groups together, or of all action sets."""
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
    table.insert(match_of(table, ANY), 0, ActionSet((WeightedAction(SEND, (1,), 100),)))
    with pytest.raises(ProfileFullError):
        table.insert(match_of(table, (0x10, 4)), 0, ActionSet((WeightedAction(SEND, (1,), 29),)))
    table.modify(match_of(table, ANY), 0, ActionSet((WeightedAction(SEND, (2,), 128),)))
    assert ports(selector) == {2}


def test_sizes_in_sum_of_members_are_enforced(selector: Program) -> None:
    profile = selector.action_profiles[MEMBERS]
    profile.counts_members = True
    profile.insert_group(Group(1, (Share(1, 4000), Share(2, 4000)), 2))
    with pytest.raises(ProfileFullError, match="size 3"):
        profile.insert_group(Group(2, (Share(1), Share(2), Share(3)), 2))
    with pytest.raises(ProfileFullError, match="65536"):
        profile.insert_group(Group(2, (Share(1, 70_000),)))


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

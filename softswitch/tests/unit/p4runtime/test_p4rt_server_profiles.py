"""Action profiles through P4Runtime: members, groups, action sets, and with which code they are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from conformance.case import PROGRAMS
from p4reduce_runtime.p4.config.v1 import p4info_pb2 as p4i
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.schema import Schema, parse_p4info
from rigs import entity_text
from rigs.entity_text import action, action_set, exact, prefix, to_group, to_member
from rigs.limits import LIMIT_S
from rigs.p4rt import Raw, Served, code_of, config

I = "MainIngress."  # noqa: E741
P4INFO = parse_p4info((PROGRAMS / "action_selector.p4info.txtpb").read_text())
SCHEMA = Schema.from_p4info(P4INFO)
MEMBERS, TABLE, SEND = I + "members", I + "t", I + "send"
DEVICE_CONFIG = (PROGRAMS / "action_selector.json").read_bytes()


@pytest.fixture
def raw(switch: Served) -> Iterator[Raw]:
    """Primary, with the selector program committed."""
    with Raw(switch.address) as one:
        assert one.arbitrate().status.code == 0
        one.set_config(config=config(DEVICE_CONFIG, p4info=P4INFO))
        yield one


def entity(text: str) -> p4r.Entity:
    return entity_text.entity(SCHEMA, text)


def member(id: int, port: int | None = None) -> str:
    return entity_text.member(MEMBERS, id, (SEND, id if port is None else port))


def group(id: int, *members: tuple[int, int, int], max_size: int = 0) -> str:
    return entity_text.group(MEMBERS, id, members, max_size)


def entry(number: int, refers: str = "") -> str:
    return entity_text.entry(TABLE, prefix(number << 4, 4), refers)


def sends(*rows: tuple[int, int, int]) -> str:
    """An action set: an action for each (port, weight, watch port)."""
    return action_set(*(((SEND, port), weight, watch) for port, weight, watch in rows))


def codes(raw: Raw, operation: str, *texts: str) -> list[str]:
    return raw.write(*((operation, entity(one)) for one in texts))


def read(raw: Raw, kind: str, **fields: int) -> list[p4r.Entity]:
    query = p4r.Entity()
    getattr(query, kind).SetInParent()
    for name, value in fields.items():
        setattr(getattr(query, kind), name, value)
    return raw.read(query)


def entities(*texts: str) -> list[p4r.Entity]:
    return [entity(text) for text in texts]


def test_members_and_groups_are_written_and_read(raw: Raw) -> None:
    id = SCHEMA.action_profiles[MEMBERS].id
    one, two, both = member(1), member(2), group(7, (1, 1, 0), (2, 3, 5), max_size=4)
    assert codes(raw, "INSERT", one, two, both, entry(1, to_group(7)), entry(2, to_member(2))) == ["OK"] * 5
    assert read(raw, "action_profile_member") == entities(one, two)
    assert read(raw, "action_profile_member", action_profile_id=id, member_id=2) == entities(two)
    assert read(raw, "action_profile_member", member_id=3) == []
    assert read(raw, "action_profile_group", action_profile_id=id) == entities(both)
    assert read(raw, "action_profile_group", group_id=8) == []
    assert read(raw, "table_entry", table_id=SCHEMA.tables[TABLE].id) == entities(
        entry(1, to_group(7)), entry(2, to_member(2))
    )
    assert raw.read(entity(entity_text.entry(TABLE, "", to_member(2)))) == entities(entry(2, to_member(2)))
    changed, smaller = member(2, 9), group(7, (2, 1, 0), max_size=4)
    assert codes(raw, "MODIFY", changed, smaller, entry(2, to_group(7))) == ["OK"] * 3
    assert read(raw, "action_profile_group") == entities(smaller)
    assert codes(raw, "DELETE", entry(1), entry(2), smaller, one, two) == ["OK"] * 5
    assert read(raw, "action_profile_member") == read(raw, "action_profile_group") == []


def test_action_sets_are_read_as_they_were_written(raw: Raw) -> None:
    first = entry(1, sends((4, 2, 0), (5, 1, 6), (4, 1, 0)))
    assert codes(raw, "INSERT", first, entry(2, sends())) == ["OK"] * 2
    assert read(raw, "table_entry", table_id=SCHEMA.tables[TABLE].id) == entities(first, entry(2, sends()))
    assert read(raw, "action_profile_member") == read(raw, "action_profile_group") == []
    assert codes(raw, "INSERT", member(1), group(1)) == ["INVALID_ARGUMENT"] * 2, "one way or the other"
    assert codes(raw, "MODIFY", entry(1, sends((8, 1, 0)))) == ["OK"]
    assert codes(raw, "DELETE", entry(1), entry(2)) == ["OK"] * 2
    assert codes(raw, "INSERT", member(1), entry(1, sends((4, 1, 0)))) == ["OK", "INVALID_ARGUMENT"]


def test_invalid_members_and_groups_are_refused(raw: Raw) -> None:
    assert codes(raw, "INSERT", member(1), group(1, (1, 1, 0), max_size=9)) == ["OK", "OK"]
    no_action, no_profile, bad_action, bad_param = (entity(member(2)) for _ in range(4))
    no_action.action_profile_member.ClearField("action")
    no_profile.action_profile_member.action_profile_id = 99
    bad_action.action_profile_member.action.action_id = 99
    bad_param.action_profile_member.action.params[0].value = b"\x02\0"
    negative, wide = entity(group(2, (1, 1, 0))), entity(group(2, (1, 1, 0)))
    negative.action_profile_group.members[0].weight = -1
    wide.action_profile_group.members[0].watch_port = b"\x02\0"
    updates = [
        ("INSERT", entity(member(1)), "ALREADY_EXISTS"),
        ("INSERT", entity(member(0)), "INVALID_ARGUMENT"),
        ("INSERT", no_action, "INVALID_ARGUMENT"),
        ("INSERT", no_profile, "INVALID_ARGUMENT"),
        ("INSERT", bad_action, "INVALID_ARGUMENT"),
        ("INSERT", bad_param, "OUT_OF_RANGE"),
        ("MODIFY", entity(member(2)), "NOT_FOUND"),
        ("DELETE", entity(member(2)), "NOT_FOUND"),
        ("DELETE", entity(member(1)), "FAILED_PRECONDITION"),
        ("INSERT", entity(group(1)), "ALREADY_EXISTS"),
        ("INSERT", entity(group(2, (8, 1, 0))), "NOT_FOUND"),
        ("INSERT", entity(group(2, (1, 0, 0))), "INVALID_ARGUMENT"),
        ("INSERT", negative, "INVALID_ARGUMENT"),
        ("INSERT", wide, "INVALID_ARGUMENT"),
        ("INSERT", entity(group(2, (1, 1, 0), (1, 2, 0))), "INVALID_ARGUMENT"),
        ("INSERT", entity(group(2, (1, 5, 0), max_size=4)), "RESOURCE_EXHAUSTED"),
        ("INSERT", entity(group(2, (1, 1000, 0))), "RESOURCE_EXHAUSTED"),
        ("INSERT", entity(group(2, max_size=-1)), "INVALID_ARGUMENT"),
        ("MODIFY", entity(group(1, max_size=8)), "INVALID_ARGUMENT"),
        ("MODIFY", entity(group(2)), "NOT_FOUND"),
        ("DELETE", entity(group(2)), "NOT_FOUND"),
        ("INSERT", entity(entry(3, to_member(9))), "INVALID_ARGUMENT"),
        ("INSERT", entity(entry(3, to_group(9))), "INVALID_ARGUMENT"),
        ("INSERT", entity(entry(3, action(SEND, 1))), "INVALID_ARGUMENT"),
        ("INSERT", entity(entry(3)), "INVALID_ARGUMENT"),
        ("MODIFY", entity(entity_text.entry(TABLE, "is_default_action: true", action(SEND, 1))), "INVALID_ARGUMENT"),
        ("INSERT", entity(entry(3, to_group(1))), "OK"),
        ("DELETE", entity(group(1)), "FAILED_PRECONDITION"),
    ]
    got = raw.write(*((operation, one) for operation, one, _ in updates))
    assert got == [wanted for _, _, wanted in updates]
    unknown = p4r.Entity(action_profile_group={"action_profile_id": 99})
    assert code_of(raw.read, unknown) == "INVALID_ARGUMENT"


def test_invalid_action_sets_are_refused(raw: Raw) -> None:
    good = entity(entry(1, sends((4, 1, 0))))
    weightless, at_random, of_group = (p4r.Entity.FromString(good.SerializeToString()) for _ in range(3))
    weightless.table_entry.action.action_profile_action_set.action_profile_actions[0].weight = 0
    at_random.table_entry.action.action_profile_action_set.action_selection_mode = 2
    of_group.table_entry.action.action_profile_action_set.group_action.SetInParent()
    too_large = entity(entry(1, sends((4, 129, 0))))
    assert raw.write(*(("INSERT", one) for one in (weightless, at_random, of_group, too_large, good))) == [
        "INVALID_ARGUMENT",
        "UNIMPLEMENTED",
        "UNIMPLEMENTED",
        "RESOURCE_EXHAUSTED",
        "OK",
    ]


def test_a_direct_table_refuses_members(raw: Raw) -> None:
    """Nor does a profile without a selector take groups."""
    p4info = parse_p4info((PROGRAMS / "action_run_profile.p4info.txtpb").read_text())
    schema = Schema.from_p4info(p4info)
    raw.set_config(config=config((PROGRAMS / "action_run_profile.json").read_bytes(), p4info=p4info))
    refers = (to_group(1), sends((1, 1, 0)), to_member(1))
    changed = [entity_text.member("members", 1, (SEND, 1)), entity_text.group("members", 1)]
    updates = [*changed, *(entity_text.entry(TABLE, exact(1), one) for one in refers)]
    got = raw.write(*(("INSERT", entity_text.entity(schema, one)) for one in updates))
    assert got == ["OK", *["INVALID_ARGUMENT"] * 3, "OK"]


def test_limits_of_the_p4info_are_enforced(raw: Raw) -> None:
    """max_group_size, and what sizes count."""
    p4info = p4i.P4Info.FromString(P4INFO.SerializeToString())
    p4info.action_profiles[0].max_group_size = 3
    raw.set_config(config=config(DEVICE_CONFIG, p4info=p4info))
    assert codes(raw, "INSERT", member(1), member(2), group(1, (1, 2, 0), (2, 2, 0)), group(1, max_size=4)) == [
        "OK",
        "OK",
        "RESOURCE_EXHAUSTED",
        "INVALID_ARGUMENT",
    ]
    p4info.action_profiles[0].sum_of_members.max_member_weight = 5
    raw.set_config(config=config(DEVICE_CONFIG, p4info=p4info))
    weights = [group(1, (1, 5, 0), (2, 5, 0), (3, 5, 0)), group(2, (1, 6, 0))]
    assert codes(raw, "INSERT", member(1), member(2), member(3), *weights) == ["OK"] * 4 + ["INVALID_ARGUMENT"]
    raw.set_config(config=config(DEVICE_CONFIG, p4info=p4info))
    sets = [entry(1, sends(*[(port, 5, 0)] * 3)) for port in (1,)]
    sets += [entry(2, sends(*[(1, 1, 0)] * 4))]
    assert codes(raw, "INSERT", *sets) == ["OK", "INVALID_ARGUMENT"]


def test_profiles_survive_a_reconciled_program(raw: Raw) -> None:
    written = [member(1), member(2), group(1, (1, 1, 0), (2, 2, 0)), entry(1, to_group(1)), entry(2, to_member(2))]
    assert codes(raw, "INSERT", *written) == ["OK"] * 5
    raw.set_config("RECONCILE_AND_COMMIT", config(DEVICE_CONFIG, p4info=P4INFO))
    assert [*read(raw, "action_profile_member"), *read(raw, "action_profile_group")] == entities(*written[:3])
    assert read(raw, "table_entry", table_id=SCHEMA.tables[TABLE].id) == entities(*written[3:])
    raw.set_config(config=config(DEVICE_CONFIG, p4info=P4INFO))
    one_shot = entry(1, sends((4, 2, 0)))
    assert codes(raw, "INSERT", one_shot) == ["OK"]
    raw.set_config("RECONCILE_AND_COMMIT", config(DEVICE_CONFIG, p4info=P4INFO))
    assert read(raw, "table_entry", table_id=SCHEMA.tables[TABLE].id) == entities(one_shot)


def test_a_p4info_of_another_program_is_refused(raw: Raw) -> None:
    for change in ("selector", "table", "direct"):
        p4info = p4i.P4Info.FromString(P4INFO.SerializeToString())
        device_config = DEVICE_CONFIG
        if change == "direct":  # the program's table has no profile
            program = json.loads(DEVICE_CONFIG)
            for pipeline in program["pipelines"]:
                pipeline["action_profiles"] = []
                for table in pipeline["tables"]:
                    table["type"] = "simple"
            device_config = json.dumps(program).encode()
        elif change == "selector":
            p4info.action_profiles[0].with_selector = False
        else:
            p4info.tables[0].implementation_id = 0
        assert code_of(raw.set_config, config=config(device_config, p4info=p4info)) == "INVALID_ARGUMENT"


def test_a_profile_that_no_table_uses_refuses_members(raw: Raw) -> None:
    """p4c lists it in the P4Info, and leaves it out of the program."""
    p4info = p4i.P4Info.FromString(P4INFO.SerializeToString())
    p4info.action_profiles.add(size=4).preamble.CopyFrom(P4INFO.action_profiles[0].preamble)
    p4info.action_profiles[1].preamble.id += 1
    p4info.action_profiles[1].preamble.name = p4info.action_profiles[1].preamble.alias = "unused"
    raw.set_config(config=config(DEVICE_CONFIG, p4info=p4info))
    given = entity(member(1))
    given.action_profile_member.action_profile_id = p4info.action_profiles[1].preamble.id
    assert raw.write(("INSERT", given), ("INSERT", entity(member(1)))) == ["INVALID_ARGUMENT", "OK"]


def test_members_that_watch_a_port_that_is_down_are_not_chosen(raw: Raw, switch: Served) -> None:
    assert codes(raw, "INSERT", entry(1, sends((4, 1, 4), (5, 1, 0)))) == ["OK"]
    switch.switch.port_changed(4, False)

    def chosen() -> set[int]:
        for flow in range(20):
            switch.switch.receive(1, bytes((0x10, 0, 0, flow)))
        return {switch.ports.sent.get(timeout=LIMIT_S)[0] for _ in range(20)}

    assert chosen() == {5}
    raw.set_config("RECONCILE_AND_COMMIT", config(DEVICE_CONFIG, p4info=P4INFO))
    assert chosen() == {5}, "the next program knows of the port"
    switch.switch.port_changed(4, True)
    assert chosen() == {4, 5}

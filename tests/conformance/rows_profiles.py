"""Entries and frames for the small programs about action profiles and selectors.

Which member a selector chooses for a frame is BMv2's: it counts through the handles of a group's members, which its
P4Runtime server gives out, takes back and gives again. So the cases add, remove and weigh members in many orders.
"""

from __future__ import annotations

import random

from conformance.case import Case, PortState, Step, delete, insert, modify, program_case
from conformance.frames import counted, hexes, noise
from p4reduce_controller.p4runtime.entries import TableEntry
from rigs import entity_text
from rigs.entity_text import action_set, entry, exact, prefix, ternary, to_group, to_member

I = "MainIngress."  # noqa: E741
MEMBERS = "members"
ALGORITHMS = ("crc16", "crc32", "csum16", "xor16", "identity")


def cases() -> list[Case]:
    """Every case of this module."""
    return [
        program_case("action_profile", *_profile()),
        program_case("action_run_profile", *_action_run()),
        program_case("action_selector", *_groups()),
        program_case("selector_handles", *_random_groups(), program="action_selector"),
        program_case("selector_one_shot", *_one_shots(), program="action_selector"),
        program_case("selector_watch_ports", *_watch_ports(), program="action_selector"),
        program_case("selector_hashes", *_hashes()),
    ]


def member(id: int, action: str = "send", value: int | None = None) -> str:
    """A member whose argument is its id unless another is given."""
    return entity_text.member(MEMBERS, id, (I + action, id if value is None else value))


def group(id: int, *members: tuple[int, ...]) -> str:
    """A group of (member, weight, watch port), the last two 1 and 0 unless given."""
    return entity_text.group(MEMBERS, id, [(*row, *(1, 0)[len(row) - 1 :])[:3] for row in members])  # type: ignore[misc]


def _profile() -> list[Step]:
    probes = counted((1, 2, 3), (0, 0x81), (0,))
    first = [entry(I + "first", exact(a), to_member(id)) for a, id in ((1, 5), (2, 6))]
    second = entry(I + "second", ternary(0x80, 0x80), to_member(5))
    moved = entry(I + "first", exact(2), to_member(5))
    return [
        *probes,
        insert(member(5), member(6, "mark")),
        insert(member(5, "mark")),
        insert(*first, second),
        insert(entry(I + "first", exact(3), to_member(9))),
        *probes,
        modify(member(5, "mark", 0x55)),
        *probes,
        modify(moved),
        delete(member(6)),
        *probes,
        delete(member(5)),
        modify(member(6)),
        delete(member(6)),
        delete(first[0], second),
        *probes,
        modify(second),
        delete(moved),
        delete(member(5)),
        *probes,
        insert(TableEntry(I + "first", {"hdr.h.a": 3}, I + "send", {"port": 3})),
        modify(TableEntry(I + "first", is_default=True, action=I + "send", params={"port": 3})),
    ]


def _action_run() -> list[Step]:
    probes = counted((1, 2, 3), (0,), (7,))
    table = I + "t"
    return [
        *probes,
        insert(member(1), member(2, "mark", 9)),
        insert(*(entry(table, exact(id), to_member(id)) for id in (1, 2))),
        *probes,
        modify(member(1, "mark", 8), member(2)),
        *probes,
    ]


def _routes() -> list[str]:
    """Group 1 for 10/4, group 2 for 1/4, member 1 for 4/2."""
    rows = ((prefix(0x10, 4), to_group(1)), (prefix(0x20, 4), to_group(2)), (prefix(0x40, 2), to_member(1)))
    return [entry(I + "t", match, refers) for match, refers in rows]


def _flows(seed: str, count: int = 24) -> list[Step]:
    """Frames to either group, to the member, and to nothing; a third of them without the second header."""
    source = random.Random(seed)
    frames = []
    for _ in range(count):
        kind, more = source.choice((0x11, 0x12, 0x23, 0x45, 0x90)), source.randrange(3)
        frames.append(bytes((kind, more)) + source.randbytes(4))
    return hexes(*(frame.hex() for frame in frames), port=source.choice((1, 2)))


def _groups() -> list[Step]:
    members = [member(1), member(2), member(3, "mark"), member(4)]
    return [
        insert(*members),
        insert(group(1, (2,), (1,), (4,)), group(2, (3,))),
        insert(*_routes()),
        *_flows("members", 40),
        modify(group(1, (1, 3), (3, 2))),
        *_flows("weights", 40),
        modify(member(3, "send", 7)),
        *_flows("another action"),
        delete(member(3)),
        delete(group(2)),
        modify(group(1, (4,)), group(2, (1, 2), (2,), (3, 4), (4,))),
        *_flows("bigger", 40),
        delete(*_routes()),
        *_flows("no entries"),
        delete(group(1), group(2), *members),
        delete(group(1), members[0]),
        modify(group(1, (1,)), members[0]),
        insert(entry(I + "t", prefix(0x10, 4), to_group(1))),
    ]


def _random_groups() -> list[Step]:
    """Members come and go, so that handles are given again in another order than that of the members' ids."""
    source = random.Random("handles")
    steps: list[Step] = []
    known = list(range(1, 9))
    steps.append(insert(*(member(id) for id in source.sample(known, len(known)))))

    def some() -> tuple[tuple[int, int], ...]:
        return tuple((id, source.choice((1, 1, 2, 3))) for id in source.sample(known, source.randrange(1, 6)))

    shares = {1: some(), 2: some()}
    steps += [insert(*(group(id, *rows) for id, rows in shares.items())), insert(*_routes()[:2])]
    for round_ in range(12):
        id = source.choice((1, 2))
        shares[id] = some()
        steps.append(modify(group(id, *shares[id])))
        free = [id for id in known if all(id != row[0] for rows in shares.values() for row in rows)]
        for gone in source.sample(free, min(2, len(free))):
            known.remove(gone)
            steps.append(delete(member(gone)))
        for _ in range(source.randrange(3)):
            fresh = source.choice([id for id in range(1, 32) if id not in known])
            known.append(fresh)
            steps.append(insert(member(fresh)))
        steps += _flows(f"handles {round_}", 16)
    return steps


def _one_shots() -> list[Step]:
    def choose(match: tuple[int, int], *rows: tuple[str, int, int]) -> str:
        actions = action_set(*(((I + action, value), weight, 0) for action, value, weight in rows))
        return entry(I + "t", prefix(*match), actions if rows else "")

    first = choose((0x10, 4), ("send", 1, 1), ("send", 2, 2), ("mark", 3, 1))
    second = choose((0x20, 4), ("mark", 9, 3))
    return [
        insert(first, second),
        *_flows("one shot", 40),
        insert(member(1)),
        insert(first),
        modify(choose((0x10, 4), ("send", 7, 1), ("send", 6, 1), ("send", 7, 2))),
        *_flows("modified", 40),
        delete(second),
        insert(choose((0x40, 2), ("send", 4, 2), ("send", 5, 1))),
        *_flows("deleted", 40),
        insert(choose((0x20, 4), ("send", 5, 0))),
        delete(first),
        delete(choose((0x40, 2))),
        *_flows("empty"),
        insert(member(1)),
        insert(second),
    ]


def _watch_ports() -> list[Step]:
    return [
        insert(*(member(id) for id in range(1, 6))),
        PortState(4, False),
        insert(group(1, (1, 1, 3), (2, 2, 4), (3, 1)), group(2, (4, 1, 4), (5, 3, 6))),
        insert(*_routes()[:2]),
        *_flows("port 4 down", 30),
        PortState(3, False),
        *_flows("ports 3 and 4 down", 30),
        PortState(4, True),
        *_flows("port 3 down", 30),
        modify(group(1, (1, 1, 6), (2, 2), (3, 1, 3))),
        PortState(6, False),
        *_flows("ports 3 and 6 down", 30),
        PortState(3, True),
        PortState(6, True),
        *_flows("all up", 30),
    ]


def _hashes() -> list[Step]:
    steps: list[Step] = []
    tables = [(I, f"by_{name}") for name in ALGORITHMS] + [("MainEgress.", "by_custom")]
    for control, name in tables:
        profile = control + name
        ids = range(1, 8)
        steps.append(insert(*(entity_text.member(profile, id, (f"{control}set_{name}", 0x10 + id)) for id in ids)))
        steps.append(insert(entity_text.group(profile, 1, [(id, 1, 0) for id in ids])))
        steps.append(insert(entry(f"{control}choose_{name}", exact(1), to_group(1))))
    frames = noise("selector hashes", 40, 11)
    return [*steps, *hexes("00" * 11, "01" + "00" * 10, "01" + "ff" * 10), *(_switched_on(frame) for frame in frames)]


def _switched_on(step: Step) -> Step:
    (fixed,) = hexes("01" + step.frame.hex()[2:])  # type: ignore[union-attr]
    return fixed

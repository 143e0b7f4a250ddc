"""What BMv2 cannot do, or only by another way than P4Runtime."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from conformance.case import PROGRAMS
from p4reduce_switch.program import InvalidProgramError, KeyTest, Program, UnsupportedConstructError

FULL, WIDE = 0xFF, (1 << 72) - 1


def test_the_validity_of_a_stack_element_at_a_runtime_index(load: Callable[[str], Program]) -> None:
    program = load("beyond/stack_index_valid")
    labels = bytes((0x22, 0x45))  # two of four are there: values 0x11 and 0x22
    answers = [program.process(1, bytes((9, index)) + labels)[0][1] for index in range(4)]
    assert answers == [
        bytes((0x11, 0, 0xFE, 0x45)),
        bytes((0x22, 1, 0x22, 0xFF)),
        bytes((9, 2)) + labels,
        bytes((9, 3)) + labels,
    ]


def test_a_copy_of_a_stack_s_last_element(load: Callable[[str], Program]) -> None:
    program = load("beyond/last_element")
    frames = [bytes(labels) for labels in ((0x0A,), (0x0B, 0x0A), (0x0B, 0x0D, 0x0E), (0x0B, 0x02), (0x02,))]
    assert [program.process(3, frame + b"..")[0][1] for frame in frames] == [
        bytes(labels) + b".." for labels in ((0x0A,), (0x0B, 0x0A), (0x0F, 0x0D, 0x0E), (0x0B, 0x02), (0x02,))
    ]


def test_random_hashes_are_evenly_distributed(load: Callable[[str], Any]) -> None:
    program = load("beyond/random_hash")
    program.random.seed(1)
    numbers = Counter(program.process(1, b"\0\0")[0][1][1] for _ in range(300))
    assert sorted(numbers) == list(range(10)), "within base and size, and all of them"
    assert max(numbers.values()) < 80


# ---- parser value sets


def frame(kind: int, id: int = 0, level: int = 0, wide: int = 0) -> bytes:
    return bytes((kind, *id.to_bytes(2, "big"), level, *wide.to_bytes(9, "big"), 0))


def way(program: Program, *fields: int) -> int:
    """What the parser noted of the way that a frame took."""
    return program.process(1, frame(*fields))[0][1][-1]


def exact(value: int) -> tuple[KeyTest, ...]:
    return (KeyTest(FULL, value, 0, FULL),)


def pair(kind: int, id: tuple[int, int], level: tuple[int, int], wide: tuple[int, int]) -> tuple[KeyTest, ...]:
    """Exact, value and mask, low and high, value and prefix length."""
    prefix = WIDE ^ (WIDE >> wide[1])
    return (*exact(kind), KeyTest(id[1], id[0], 0, 0xFFFF), KeyTest(0, 0, *level), KeyTest(prefix, wide[0], 0, WIDE))


def test_a_value_set_selects_its_state(load: Callable[[str], Program]) -> None:
    program = load("value_set")
    kinds = program.value_sets["Parse.kinds"]
    assert [way(program, kind) for kind in range(4)] == [0, 1, 2, 0]
    kinds.set_members([exact(3), exact(2), exact(1)])
    assert [way(program, kind) for kind in range(5)] == [0, 1, 3, 3, 0], "the cases before it come first"
    kinds.set_members([exact(4)])
    assert [way(program, kind) for kind in range(5)] == [0, 1, 2, 0, 3]
    kinds.set_members([(KeyTest(0x0F, 3, 0, 0x80),)])
    assert [way(program, kind) for kind in (0x03, 0x13, 0x73, 0x83, 0x04)] == [3, 3, 3, 0, 0]


def test_a_member_matches_on_each_key(load: Callable[[str], Program]) -> None:
    program = load("value_set")
    pairs = program.value_sets["Parse.pairs"]
    assert pairs.widths == (8, 16, 8, 72)
    high = 0xAB << 64
    pairs.set_members([pair(5, (0x1200, 0xFF00), (10, 20), (high, 8)), pair(6, (0, 0), (0, 255), (0, 0))])
    matching = (5, 0x1234, 15, high | 77)
    assert way(program, *matching) == 0x80
    for position, other in ((0, 7), (1, 0x1334), (2, 9), (2, 21), (3, high << 1 & WIDE)):
        fields = list(matching)
        fields[position] = other
        assert way(program, *fields) == 0, position
    assert way(program, 6, 1, 2, 3) == 0x80


def test_bad_members(load: Callable[[str], Program]) -> None:
    kinds = load("value_set").value_sets["Parse.kinds"]
    kinds.set_members([exact(3)])
    for members, message in (([exact(3) * 2], "has 1 keys"), ([exact(256)], "does not fit 8 bits")):
        with pytest.raises(ValueError, match=message):
            kinds.set_members(members)
    assert kinds.members == (exact(3),), "a refused write changes nothing"


def test_malformed_value_sets(config: Callable[[str], dict[str, Any]]) -> None:
    undeclared, narrow, masked = (config("value_set") for _ in range(3))
    undeclared["parse_vsets"] = []
    with pytest.raises(InvalidProgramError, match="value set"):
        Program(undeclared)
    narrow["parse_vsets"][0]["compressed_bitwidth"] = 7
    with pytest.raises(InvalidProgramError, match="other widths"):
        Program(narrow)
    (case,) = (
        case
        for state in masked["parsers"][0]["parse_states"]
        for case in state["transitions"]
        if case["value"] == "Parse.kinds"
    )
    case["mask"] = "0x0f"
    with pytest.raises(UnsupportedConstructError, match="a mask over parser value set Parse.kinds"):
        Program(masked)


def test_members_of_random_tests() -> None:
    program = Program((PROGRAMS / "value_set.json").read_bytes())
    source, taken = random.Random("value sets"), 0
    for _ in range(150):
        members = [
            pair(source.choice((0, 3)), (id & mask, mask), (low, low + source.randrange(9)), (wide & prefix, length))
            for _ in range(source.randrange(4))
            for id, mask, low in [(source.randrange(4), source.choice((0, 1, 3, 0xFFFF)), source.randrange(8))]
            for length in [source.randrange(73)]
            for wide, prefix in [(source.getrandbits(72), WIDE ^ (WIDE >> length))]
        ]
        program.value_sets["Parse.pairs"].set_members(members)
        for _ in range(4):
            fields = [source.choice((0, 3)), source.randrange(4), source.randrange(16), source.getrandbits(4)]
            if members and source.random() < 0.7:  # what a member takes, but for one field
                kind, id, level, wide = source.choice(members)
                fields = [kind.value, id.value, level.low, wide.value]
                fields[source.randrange(1, 4)] ^= source.getrandbits(2)
            expected = any(
                all(
                    key & test.mask == test.value and test.low <= key <= test.high
                    for key, test in zip(fields, member, strict=True)
                )
                for member in members
            )
            assert way(program, *fields) == (0x80 if expected else 0), (members, fields)
            taken += expected
    assert 100 < taken < 500

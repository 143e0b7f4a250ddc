"""What no recording of BMv2 shows: what it cannot do, what depends on the clock, and frames that a program refuses."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from conformance.case import PROGRAMS, Arrive
from conformance.corpus import all_cases
from p4reduce_switch.program import (
    ExecutionError,
    InvalidProgramError,
    Program,
    Replica,
    TargetOptions,
    UnsupportedConstructError,
)
from p4reduce_switch.program.ir.program import KeyTest
from p4reduce_switch.program.state.replication import CloneSession
from p4reduce_switch.program.state.stateful import GREEN, RED, YELLOW, Bucket, MeterConfig

RATES = MeterConfig(cir=1000, cburst=2, pir=2000, pburst=4)
EGRESS_CLONE, REPLICATION = 2, 5
PAYLOAD = b"abcd"
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
    """The parser's note of the states that a frame took."""
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


# ---- externs


def test_a_register_is_read_into_a_field_at_a_runtime_index(
    load: Callable[[str], Program], config: Callable[[str], dict[str, Any]]
) -> None:
    """BMv2 ends over such a read, so the corpus's program reads into metadata and copies from there."""
    changed = config("register_places")
    primitives = next(a["primitives"] for a in changed["actions"] if len(a["primitives"]) > 1)
    reads = [index for index, primitive in enumerate(primitives) if primitive["op"] == "register_read"]
    copied = primitives.pop(reads[1] + 1)
    assert copied["op"] == "assign"
    primitives[reads[1]]["parameters"][0] = copied["parameters"][0]
    known, direct = load("register_places"), Program(changed)
    frames = [step.frame for step in all_cases()["register_places"].steps if isinstance(step, Arrive)]
    assert len(frames) >= 50
    assert [direct.process(1, frame) for frame in frames] == [known.process(1, frame) for frame in frames]


def test_bucket_is_a_two_rate_three_color_marker() -> None:
    bucket = Bucket()
    assert bucket.execute(1, 0) == GREEN
    bucket.configure(RATES, 0)
    assert [bucket.execute(1, 0) for _ in range(5)] == [GREEN, GREEN, YELLOW, YELLOW, RED]
    assert bucket.execute(1, 499) == RED
    assert bucket.execute(1, 500) == YELLOW  # 500 us at 2000/s: one token of the peak rate
    assert bucket.execute(1, 1000) == GREEN
    assert [bucket.execute(1, 10**9) for _ in range(5)] == [GREEN, GREEN, YELLOW, YELLOW, RED]


def test_log_msg_calls_on_log(load: Callable[[str], Program]) -> None:
    program, messages = load("state"), []
    frame = bytes.fromhex("07 03 0009 0000 0000")
    program.process(1, frame)
    program.on_log = messages.append
    program.process(1, frame)
    assert messages == ["value is 9 of 3"]


# ---- copies


def command(operation: int) -> bytes:
    return struct.pack(">BBBBBHB", operation, 0, 0, 0, 0, 0, 0) + PAYLOAD


def copy(operation: int, kind: int, kept: int, rid: int, *, payload: bytes = PAYLOAD, lost: int = 0) -> bytes:
    """A frame that left; `lost` is metadata that no field list keeps."""
    return struct.pack(">BBBBBHB", operation, kind, kept, lost, rid, 12, 1) + payload


@pytest.fixture
def copying(load: Callable[[str], Program]) -> Program:
    loaded = load("copies")
    loaded.replication.clone_sessions = {6: CloneSession((Replica(3, 0),), truncate_len=10)}
    loaded.replication.multicast_groups[2] = [Replica(7, 1), Replica(6, 2), Replica(7, 3)]
    return loaded


def test_multicast_in_the_order_of_the_group(copying: Program) -> None:
    expected = [(port, copy(7, REPLICATION, 0, rid, lost=5)) for port, rid in ((7, 1), (6, 2), (7, 3))]
    assert copying.process(9, command(7)) == expected
    copying.replication.multicast_groups.clear()
    assert copying.process(9, command(7)) == []


def test_egress_clone_is_truncated_by_its_session(copying: Program) -> None:
    assert copying.process(9, command(3)) == [
        (1, copy(3, 0, 0, 0)),
        (3, copy(3, EGRESS_CLONE, 9, 0, payload=PAYLOAD[:2])),
    ]


# ---- frames that a program refuses


@pytest.mark.parametrize(
    ("name", "frame", "message"),
    [("state", "08 00 0002 0000 0000", "assert"), ("stack", "03 03 00 00 0340", r"index 3 is outside 0\.\.2")],
)
def test_a_frame_that_fails_names_what_failed(
    load: Callable[[str], Program], name: str, frame: str, message: str
) -> None:
    with pytest.raises(ExecutionError, match=message):
        load(name).process(1, bytes.fromhex(frame))


def test_endless_recirculation_is_stopped(config: Callable[[str], dict]) -> None:
    endless = config("copies")
    ingress = next(p for p in endless["pipelines"] if p["name"] == "ingress")
    # Every packet takes the branch that resubmits.
    for action in endless["actions"]:
        if any(p["op"] == "resubmit" for p in action["primitives"]):
            resubmit = action["id"]
    table = next(t for t in ingress["tables"] if t["action_ids"] == [resubmit])
    ingress["init_table"] = table["name"]
    with pytest.raises(ExecutionError, match="passes"):
        Program(endless).process(1, command(0))


def test_an_empty_frame_is_passed_on_unparsed(load: Callable[[str], Program]) -> None:
    assert load("wide").process(1, b"") == [(1, b"")]


def test_an_ingress_port_out_of_range_is_an_error(load: Callable[[str], Program]) -> None:
    with pytest.raises(ValueError, match="port 512"):
        load("l2").process(512, bytes(14))


@pytest.mark.parametrize("drop_port", [511, 500, 2])
def test_frames_to_the_drop_port_and_those_marked_to_drop_are_dropped(drop_port: int) -> None:
    """By byte: 0 port 1; 1 marked, 3 sent to 511, 4 marked in egress; 2 sent to 2 after the mark; 6 marked."""
    program = Program((PROGRAMS / "drop.json").read_bytes(), TargetOptions(drop_port=drop_port))
    expected = {0: 1, 1: None, 2: 2, 3: 511, 4: None, 6: None}
    for byte, port in expected.items():
        outputs = program.process(3, bytes([byte]))
        assert outputs == ([] if port is None or port == drop_port else [(port, bytes([byte]))]), byte

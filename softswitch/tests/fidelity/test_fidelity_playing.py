"""Generated tests on the embedded switch, and on BMv2 where it is: each verdict, what is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conformance import bmv2
from conformance.case import PROGRAMS
from fidelity.generated import Expected, GeneratedTest
from fidelity.playing import BMV2, EMBEDDED, Built, Player, Verdict, read_built
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime import codec
from p4reduce_runtime.p4runtime.entries import Entry, MulticastGroup, TableEntry
from p4reduce_runtime.p4runtime.schema import Schema, parse_p4info
from rigs.entity_text import clone_session, entity


@pytest.fixture
def player() -> Iterator[Player]:
    with Player(EMBEDDED) as one:
        yield one


def built(name: str) -> Built:
    stem = PROGRAMS / name
    return read_built(stem.with_suffix(".json"), stem.with_suffix(".p4info.txtpb"))


def sends(port: int, frame: bytes) -> tuple[Expected, ...]:
    return (Expected(port, frame, b"\xff" * len(frame)),)


PROGRAM = built("drop_by_copy")


def choose(port: int) -> object:
    schema = Schema.from_p4info(parse_p4info(PROGRAM.p4info))
    return codec.encode(schema, TableEntry("MainIngress.choose", {"key": 1}, "MainIngress.send", {"port": port}))


def test_a_test_passes_or_fails_by_the_frames_sent(player: Player) -> None:
    # Mode 2 drops a copy alone, but the group has no members: nothing leaves.
    assert player.play(PROGRAM, GeneratedTest(1, b"\x02\x01", ())).verdict is Verdict.PASS
    assert player.play(PROGRAM, GeneratedTest(1, b"\x02\x01", sends(1, b"\x02\x01"))).verdict is Verdict.FAIL
    sent = player.play(PROGRAM, GeneratedTest(1, b"\x06\x01", sends(2, b"\x06\x02")))
    assert (sent.verdict, sent.outputs) == (Verdict.PASS, ((2, b"\x06\x02"),))


def test_entries_are_deleted_after_their_test(player: Player) -> None:
    entries = built("exact_two_keys")
    schema = Schema.from_p4info(parse_p4info(entries.p4info))
    table = TableEntry("MainIngress.pairs", {"a": 1, "b": 2}, "MainIngress.answer", {"value": 7})
    frame = bytes.fromhex("01000200aa")
    without = player.play(entries, GeneratedTest(1, frame, ()))
    with_entry = player.play(entries, GeneratedTest(1, frame, (), (codec.encode(schema, table),)))
    assert with_entry.outputs != without.outputs
    assert player.play(entries, GeneratedTest(1, frame, ())).outputs == without.outputs


def test_refused_constructs_are_distinguished_from_invalid_programs(player: Player) -> None:
    refused = player.play(built("refused/union_variable"), GeneratedTest(1, b"a", ()))
    assert refused.verdict is Verdict.REFUSED and "header union" in refused.reason and not refused.played
    invalid = player.play(Built(b"{}", PROGRAM.p4info), GeneratedTest(1, b"a", ()))
    assert invalid.verdict is Verdict.ERROR and "SetForwardingPipelineConfig" in invalid.reason
    unknown = p4r.Entity()
    unknown.table_entry.table_id = 1
    entry = player.play(PROGRAM, GeneratedTest(1, b"a", (), (unknown,)))
    assert entry.verdict is Verdict.ERROR and "no table with id 1" in entry.reason
    twice = player.play(PROGRAM, GeneratedTest(1, b"a", (), (choose(1), choose(2))))
    assert twice.verdict is Verdict.ERROR and "already has this entry" in twice.reason
    assert player.play(PROGRAM, GeneratedTest(1, b"\x02\x01", ())).verdict is Verdict.PASS, "the switch goes on"


def test_an_empty_frame_is_not_played(player: Player) -> None:
    assert player.play(PROGRAM, GeneratedTest(1, b"", ())).verdict is Verdict.REFUSED


needs_bmv2 = (pytest.mark.bmv2, pytest.mark.skipif(bmv2.SWITCH is None, reason="simple_switch_grpc is not on PATH"))
COPIED = [
    ("clone_i2e", clone_session(7, (2, 5), (3, 6)), bytes.fromhex("0100000000000a")),
    ("multicast_rids", MulticastGroup(7, ((2, 5), (3, 6))), bytes.fromhex("00070000000000")),
]
"""A program, an entry of the packet replication engine, and a frame of which this entry makes copies."""


def encoded(program: Built, entry: Entry | str) -> Any:
    schema = Schema.from_p4info(parse_p4info(program.p4info))
    return entity(schema, entry) if isinstance(entry, str) else codec.encode(schema, entry)


@pytest.mark.parametrize("switch", [EMBEDDED, pytest.param(BMV2, marks=needs_bmv2)])
@pytest.mark.parametrize(("name", "entry", "frame"), COPIED, ids=lambda value: value if isinstance(value, str) else "")
def test_clone_and_multicast_entries_are_deleted_after_their_test(
    switch: str, name: str, entry: Entry, frame: bytes
) -> None:
    program = built(name)
    with_entry = GeneratedTest(1, frame, (), (encoded(program, entry),))
    with Player(switch) as player:
        without = player.play(program, GeneratedTest(1, frame, ()))
        copied = player.play(program, with_entry)
        assert sorted(set(copied.outputs) - set(without.outputs)) and len(copied.outputs) == len(without.outputs) + 2
        assert player.play(program, GeneratedTest(1, frame, ())).outputs == without.outputs
        assert sorted(player.play(program, with_entry).outputs) == sorted(copied.outputs), "each copy leaves once"

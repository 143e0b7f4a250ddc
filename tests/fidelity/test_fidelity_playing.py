"""Generated tests on the embedded switch: each verdict, with each executor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.case import PROGRAMS
from fidelity.generated import Expected, GeneratedTest
from fidelity.playing import Built, Player, Verdict, read_built
from p4reduce_contracts.p4runtime import codec, messages
from p4reduce_contracts.p4runtime.entries import TableEntry
from p4reduce_contracts.p4runtime.schema import Schema
from p4reduce_switch.program import executors


@pytest.fixture(params=sorted(executors))
def player(request: pytest.FixtureRequest) -> Iterator[Player]:
    with Player(request.param) as one:
        yield one


def built(name: str) -> Built:
    stem = PROGRAMS / name
    return read_built(stem.with_suffix(".json"), stem.with_suffix(".p4info.txtpb"))


def sends(port: int, frame: bytes) -> tuple[Expected, ...]:
    return (Expected(port, frame, b"\xff" * len(frame)),)


PROGRAM = built("drop_by_copy")


def choose(port: int) -> object:
    schema = Schema.from_p4info(messages.parse_p4info(PROGRAM.p4info))
    return codec.encode(schema, TableEntry("MainIngress.choose", {"key": 1}, "MainIngress.send", {"port": port}))


def test_a_test_passes_or_fails_by_what_leaves(player: Player) -> None:
    # Mode 2 drops a copy alone, but the group has no members: nothing leaves.
    assert player.play(PROGRAM, GeneratedTest(1, b"\x02\x01", ())).verdict is Verdict.PASS
    assert player.play(PROGRAM, GeneratedTest(1, b"\x02\x01", sends(1, b"\x02\x01"))).verdict is Verdict.FAIL
    sent = player.play(PROGRAM, GeneratedTest(1, b"\x06\x01", sends(2, b"\x06\x02")))
    assert (sent.verdict, sent.outputs) == (Verdict.PASS, ((2, b"\x06\x02"),))


def test_entries_are_there_for_their_own_test_only(player: Player) -> None:
    entries = built("exact_two_keys")
    schema = Schema.from_p4info(messages.parse_p4info(entries.p4info))
    table = TableEntry("MainIngress.pairs", {"a": 1, "b": 2}, "MainIngress.answer", {"value": 7})
    frame = bytes.fromhex("01000200aa")
    without = player.play(entries, GeneratedTest(1, frame, ()))
    with_entry = player.play(entries, GeneratedTest(1, frame, (), (codec.encode(schema, table),)))
    assert with_entry.outputs != without.outputs
    assert player.play(entries, GeneratedTest(1, frame, ())).outputs == without.outputs


def test_what_is_refused_by_name_is_told_from_what_is_invalid(player: Player) -> None:
    refused = player.play(built("refused/union_variable"), GeneratedTest(1, b"a", ()))
    assert refused.verdict is Verdict.REFUSED and "header union" in refused.reason and not refused.played
    invalid = player.play(Built(b"{}", PROGRAM.p4info), GeneratedTest(1, b"a", ()))
    assert invalid.verdict is Verdict.ERROR and "SetForwardingPipelineConfig" in invalid.reason
    unknown = messages.Entity()
    unknown.table_entry.table_id = 1
    entry = player.play(PROGRAM, GeneratedTest(1, b"a", (), (unknown,)))
    assert entry.verdict is Verdict.ERROR and "no table with id 1" in entry.reason
    twice = player.play(PROGRAM, GeneratedTest(1, b"a", (), (choose(1), choose(2))))
    assert twice.verdict is Verdict.ERROR and "already has this entry" in twice.reason
    assert player.play(PROGRAM, GeneratedTest(1, b"\x02\x01", ())).verdict is Verdict.PASS, "the switch goes on"


def test_an_empty_frame_is_not_played(player: Player) -> None:
    assert player.play(PROGRAM, GeneratedTest(1, b"", ())).verdict is Verdict.REFUSED

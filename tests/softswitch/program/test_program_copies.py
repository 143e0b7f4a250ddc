"""The traffic manager, where BMv2 has no answer to record: the case `copies` of the corpus has the rest."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from p4reduce_switch.program import CloneSession, ExecutionError, Program, Replica

EGRESS_CLONE, REPLICATION = 2, 5
PAYLOAD = b"abcd"


def command(operation: int) -> bytes:
    return struct.pack(">BBBBBHB", operation, 0, 0, 0, 0, 0, 0) + PAYLOAD


def copy(operation: int, kind: int, kept: int, rid: int, *, payload: bytes = PAYLOAD, lost: int = 0) -> bytes:
    """A frame that left; `lost` is metadata that no field list keeps."""
    return struct.pack(">BBBBBHB", operation, kind, kept, lost, rid, 12, 1) + payload


@pytest.fixture
def program(load: Callable[[str], Program]) -> Program:
    loaded = load("copies")
    loaded.replication.clone_sessions = {6: CloneSession((Replica(3, 0),), truncate_len=10)}
    loaded.replication.multicast_groups = {2: [Replica(7, 1), Replica(6, 2), Replica(7, 3)]}
    return loaded


def test_multicast_in_the_order_of_the_group(program: Program) -> None:
    expected = [(port, copy(7, REPLICATION, 0, rid, lost=5)) for port, rid in ((7, 1), (6, 2), (7, 3))]
    assert program.process(9, command(7)) == expected
    program.replication.multicast_groups.clear()
    assert program.process(9, command(7)) == []


def test_egress_clone_is_truncated_by_its_session(program: Program) -> None:
    assert program.process(9, command(3)) == [
        (1, copy(3, 0, 0, 0)),
        (3, copy(3, EGRESS_CLONE, 9, 0, payload=PAYLOAD[:2])),
    ]


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


def test_replicas_are_checked() -> None:
    with pytest.raises(ValueError, match="port 512"):
        Replica(512, 0)
    with pytest.raises(ValueError, match="instance"):
        Replica(1, 1 << 16)

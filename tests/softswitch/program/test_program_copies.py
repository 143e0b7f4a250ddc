"""The traffic manager: multicast, clones, resubmit, recirculate, truncate, drop."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from p4reduce_switch.program import CloneSession, ExecutionError, Program, Replica

INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICATION, RESUBMITTED = 1, 2, 4, 5, 6
PAYLOAD = b"abcd"


def command(operation: int) -> bytes:
    return struct.pack(">BBBBBHB", operation, 0, 0, 0, 0, 0, 0) + PAYLOAD


def copy(
    operation: int,
    kind: int,
    kept: int,
    rid: int,
    *,
    length: int = 12,
    passes: int = 1,
    payload: bytes = PAYLOAD,
    lost: int = 0,
) -> bytes:
    """A frame that left; `lost` is metadata that no field list keeps."""
    return struct.pack(">BBBBBHB", operation, kind, kept, lost, rid, length, passes) + payload


@pytest.fixture
def program(load: Callable[[str], Program]) -> Program:
    loaded = load("copies")
    loaded.replication.clone_sessions = {
        5: CloneSession((Replica(2, 21), Replica(4, 22))),
        6: CloneSession((Replica(3, 0),), truncate_len=10),
    }
    loaded.replication.multicast_groups = {2: [Replica(7, 1), Replica(6, 2), Replica(7, 3)]}
    return loaded


def test_unicast(program: Program) -> None:
    assert program.process(9, command(0)) == [(1, copy(0, 0, 0, 0))]


def test_multicast_in_the_order_of_the_group(program: Program) -> None:
    expected = [(port, copy(7, REPLICATION, 0, rid, lost=5)) for port, rid in ((7, 1), (6, 2), (7, 3))]
    assert program.process(9, command(7)) == expected
    program.replication.multicast_groups.clear()
    assert program.process(9, command(7)) == []


def test_ingress_clone_is_the_frame_as_it_came(program: Program) -> None:
    assert program.process(9, command(1)) == [
        (2, copy(1, INGRESS_CLONE, 7, 21, passes=0)),
        (4, copy(1, INGRESS_CLONE, 7, 22, passes=0)),
        (1, copy(1, 0, 0, 0)),
    ]


def test_clone_of_a_dropped_packet_without_fields(program: Program) -> None:
    assert program.process(9, command(5)) == [
        (2, copy(5, INGRESS_CLONE, 0, 21, passes=0)),
        (4, copy(5, INGRESS_CLONE, 0, 22, passes=0)),
    ]


def test_clone_to_an_unknown_session_makes_no_copy(program: Program) -> None:
    del program.replication.clone_sessions[5]
    assert program.process(9, command(5)) == []


def test_egress_clone_is_truncated_by_its_session(program: Program) -> None:
    assert program.process(9, command(3)) == [
        (1, copy(3, 0, 0, 0)),
        (3, copy(3, EGRESS_CLONE, 9, 0, payload=PAYLOAD[:2])),
    ]


def test_resubmit_keeps_the_field_list_only(program: Program) -> None:
    # The second time ingress sees the instance type; egress sees a normal packet.
    assert program.process(9, command(2)) == [(3, copy(2, RESUBMITTED, 8, 0))]


def test_recirculate_starts_from_the_deparsed_packet(program: Program) -> None:
    assert program.process(9, command(4)) == [(3, copy(4, RECIRCULATED, 10, 0, passes=2))]


def test_truncate(program: Program) -> None:
    assert program.process(9, command(6)) == [(1, copy(6, 0, 0, 0, payload=PAYLOAD[:2]))]


def test_packet_length_follows_added_headers(program: Program) -> None:
    assert program.process(9, command(8)) == [(1, copy(8, 0, 0, 0, length=14, payload=b"\xbe\xef" + PAYLOAD))]


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
        Program.load(endless).process(1, command(0))


@pytest.mark.parametrize("copied_back", [False, True])
def test_mark_to_drop_acts_on_its_argument(config: Callable[[str], dict], copied_back: bool) -> None:
    """A copy of standard_metadata that is marked drops nothing, unless it is copied back."""
    changed = config("l2")
    kind = next(h["header_type"] for h in changed["headers"] if h["name"] == "standard_metadata")
    changed["headers"].append({"name": "copy", "id": 99, "header_type": kind, "metadata": True})
    egress = next(p for p in changed["pipelines"] if p["name"] == "egress")
    (drop,) = egress["tables"]
    code = next(a["primitives"] for a in changed["actions"] if a["id"] == drop["action_ids"][0])
    assert code == [{"op": "mark_to_drop", "parameters": [{"type": "header", "value": "standard_metadata"}]}]
    code[0]["parameters"][0]["value"] = "copy"
    if copied_back:
        fields = [{"type": "field", "value": [name, "egress_spec"]} for name in ("standard_metadata", "copy")]
        code.append({"op": "assign", "parameters": fields})
    program = Program.load(changed)
    program.tables["MyIngress.mac"].set_default("MyIngress.forward", (3,))
    assert program.process(3, bytes(14)) == ([] if copied_back else [(3, bytes(14))])


def test_replicas_are_checked() -> None:
    with pytest.raises(ValueError, match="port 512"):
        Replica(512, 0)
    with pytest.raises(ValueError, match="instance"):
        Replica(1, 1 << 16)

"""Traces of packets: what they tell, in each of their forms, and that they change nothing."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest

from conformance.case import PROGRAMS
from fidelity.tools import Source, compile_program, macros
from p4reduce_switch.program import ExecutionError, PacketTrace, Program
from p4reduce_switch.program.layout import Layout
from p4reduce_switch.program.llvm.build import emit
from p4reduce_switch.program.llvm.host_abi import HostAbi
from p4reduce_switch.program.memory import StateOffsets
from p4reduce_switch.program.queues import EgressQueues
from p4reduce_switch.program.state.replication import Replica
from p4reduce_switch.program.steps import Step
from p4reduce_switch.trace.bmv2 import log_lines, messages
from p4reduce_switch.trace.formats import FORMATS
from rigs.entries import insert

EXAMPLE = Path(__file__).parents[4] / "examples" / "l3_switch" / "l3_switch.json"
P4SRC = Path(__file__).parents[4] / "p4src"
EVERY_KIND = Path(__file__).parents[2] / "rigs" / "every_kind.json"
IPV4 = bytes.fromhex("00000000010100000000000108004500001400000000401166cd0a0001010a000207")
"""A frame from 10.0.1.1 to 10.0.2.7, with a wrong checksum."""
RIGHT = IPV4[:24] + b"\x63\xd2" + IPV4[26:]


def traceable(config: Path) -> Program:
    program = Program(config.read_bytes())
    program.trace_with(program.compiled.traced())
    return program


def traced(program: Program, port: int, frame: bytes) -> PacketTrace:
    found: list[PacketTrace] = []
    program.process(port, frame, found.append)
    assert len(found) == 1
    return found[0]


def steps(trace: PacketTrace, step: Step) -> list[tuple[str, dict[str, object]]]:
    return [(event.name, event.values) for event in trace.events if event.step is step]


def dropped(trace: PacketTrace) -> object:
    return next(event.values["dropped"] for event in trace.events if "dropped" in event.values)


def test_a_trace_tells_why_a_packet_was_dropped() -> None:
    program = traceable(EXAMPLE)
    checksum = program.process(1, IPV4)
    assert checksum == []
    assert str(dropped(traced(program, 1, IPV4))).startswith("mark_to_drop in l3_switch")
    began_s = time.time()
    missed = traced(program, 1, RIGHT)
    assert began_s <= missed.at_s <= time.time()
    assert steps(missed, Step.TABLE)[0][1] == {"key": {"hdr.ipv4.dst": "0a000207"}, "hit": False}
    assert dropped(missed) == "mark_to_drop in MainIngress.drop"


def test_a_trace_tells_key_entry_action_and_what_left() -> None:
    program = traceable(EXAMPLE)
    insert(program.tables["MainIngress.routes"], ((0x0A000200, 24),), "MainIngress.forward", (0x0201, 0x0210, 2))
    found: list[PacketTrace] = []
    ((port, frame),) = program.process(1, RIGHT, found.append)
    assert steps(found[0], Step.TABLE) == [
        (
            "MainIngress.routes",
            {
                "key": {"hdr.ipv4.dst": "0a000207"},
                "hit": True,
                "handle": 0,
                "match": {"hdr.ipv4.dst": "lpm 0a000200/24"},
                "priority": 0,
            },
        )
    ]
    action = ("MainIngress.forward", {"src_mac": "000000000201", "dst_mac": "000000000210", "port": "0002"})
    assert action in steps(found[0], Step.ACTION)
    assert steps(found[0], Step.VERIFIED)[0][1] == {"computed": 0x63D2, "actual": 0x63D2, "right": True}
    sent = found[0].events[-1]
    assert (sent.step, sent.values, sent.frame) == (Step.SENT, {"port": port, "bytes": len(frame)}, frame.hex())
    table = "table MainIngress.routes [hdr.ipv4.dst=0a000207]: hit, entry 0: hdr.ipv4.dst=lpm 0a000200/24"
    assert f"0.0      {table}" in list(FORMATS["text"](found[0]))
    assert json.loads(*FORMATS["json"](found[0]))["events"][-1]["frame"] == frame.hex()


def test_the_message_is_that_of_bmv2_on_the_wire() -> None:
    program = traceable(PROGRAMS / "egress_rewrite.json")
    (message,) = messages(traced(program, 3, bytes(20)))
    assert message.input.SerializeToString() == b"\x10\x03"  # packet_id 0; ingress_port 3
    first = message.root.events[0].SerializeToString()
    assert first == b"\x0a\x0c\x0a\x06parser\x10\x01\x18\x01"  # pipeline_stage: stage_name, PARSER, ENTER
    assert message.root.WhichOneof("outcome") == "transmit"
    (message,) = messages(traced(traceable(EXAMPLE), 1, IPV4))
    assert message.root.WhichOneof("outcome") == "drop"


def test_source_lines_are_those_of_the_json() -> None:
    program = traceable(EVERY_KIND)
    found = traced(program, 1, bytes(64))
    places = {(event.step, event.at.partition("(")[0]) for event in found.events if event.at}
    assert {step for step, _ in places} >= {Step.TABLE, Step.PRIMITIVE}
    assert {file for _, file in places} == {"every_kind.p4"}
    told = [line for _, line in log_lines(found) if ") Primitive " in line]
    assert told and all(line.startswith("[0.0] [cxt 0] every_kind.p4(") for line in told)


@pytest.mark.p4c
@pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="p4c-bm2-ss is not on PATH")
def test_source_lines_of_the_own_program_compiled_now_have_the_code_shown(tmp_path: Path) -> None:
    """The program that is checked in has no source lines."""
    own, sources = Source("p4reduce", "p4reduce", P4SRC / "v1model/main.p4", macros()), P4SRC.rglob("*.p4")
    assert compile_program(own, tmp_path / "it.json", tmp_path / "it.p4info.txtpb").problem == ""
    lines = {path.name: path.read_text().splitlines() for path in sources}
    shown = [event for event in traced(traceable(tmp_path / "it.json"), 1, IPV4).events if event.at]
    assert {event.step for event in shown} >= {Step.CONDITION, Step.TABLE, Step.PRIMITIVE}
    for event in shown:
        name, _, number = event.at.rstrip(")").partition("(")
        assert event.code.split("\n")[0].rstrip(". ") in lines[Path(name).name][int(number) - 1], event


def test_copies_are_told_apart() -> None:
    program = traceable(PROGRAMS / "multicast_rids.json")
    program.replication.multicast_groups[1] = [Replica(2, 5), Replica(3, 13)]
    found = traced(program, 1, b"\0\1" + bytes(6))
    copies = [(event.copy, event.values) for event in found.events if event.step is Step.COPY]
    assert copies == [(1, {"port": 2, "instance": 5, "of": 0}), (2, {"port": 3, "instance": 13, "of": 0})]
    assert [(event.copy, event.values["port"]) for event in found.events if event.step is Step.SENT] == [(1, 2)]
    assert str(dropped(found)).startswith("mark_to_drop")
    assert dropped(traced(program, 1, b"\0\2" + bytes(6))) == "group 2 has no members"


def test_packets_of_queues_are_traced_to_the_end() -> None:
    config = (PROGRAMS / "timed" / "queues.json").read_bytes()
    program = Program(config, queues=EgressQueues())
    program.trace_with(program.compiled.traced())
    found: list[PacketTrace] = []
    assert program.process(1, bytes(20), found.append) == []
    assert [event.step for event in found[0].events][-1] is Step.QUEUED
    ((port, _),) = program.depart() or []
    assert found[1].number == found[0].number
    assert steps(found[1], Step.SENT) == [("", {"port": port, "bytes": found[1].events[-1].values["bytes"]})]


def test_a_frame_that_fails_has_a_trace_that_says_so() -> None:
    program = traceable(PROGRAMS / "state.json")
    found: list[PacketTrace] = []
    with pytest.raises(ExecutionError):
        program.process(1, bytes.fromhex("08 00 0002 0000 0000"), found.append)
    assert found[0].events[-1].step is Step.FAILED
    assert found[0].events[-1].values == {"error": "an assert or assume of the program failed"}


@pytest.mark.parametrize("name", ["l2", "clone_i2e"])
def test_plain_code_is_the_same_before_and_after_a_trace(name: str) -> None:
    program = Program((PROGRAMS / name).with_suffix(".json").read_bytes())
    compiled = program.compiled

    def plain() -> str:
        layout = Layout(compiled.program, in_memory=compiled.in_stages)
        abi = HostAbi(compiled.program, layout)
        return str(emit(compiled.program, layout, StateOffsets(compiled.program), abi).ir)

    before = plain()
    traced_abi = HostAbi(compiled.program, compiled.layout, traced=True)
    reports = str(emit(compiled.program, compiled.layout, compiled.offsets, traced_abi).ir)
    assert plain() == before != reports
    assert traced_abi.points
    assert HostAbi(compiled.program, compiled.layout).points is None

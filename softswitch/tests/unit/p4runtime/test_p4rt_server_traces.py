"""The service PacketTraces and `p4reduce switch trace`: which frames they show, and when they end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import click.testing
import grpc
import pytest

from conformance.case import PROGRAMS
from p4reduce_switch.bmv2 import cli as bmv2_cli
from p4reduce_switch.cli import switch
from p4reduce_switch.p4runtime.trace_service import MAX_WATCHES, POLL_S
from p4reduce_switch.program import PacketTrace, Program, QueueSetting
from p4reduce_switch.trace import client, trace_pb2_grpc
from p4reduce_switch.trace import trace_pb2 as pb
from rigs.limits import LIMIT_S, wait_until
from rigs.p4rt import Served, served

UDP = bytes(12) + b"\x08\0\x45" + bytes(11) + bytes((10, 0, 0, 1, 10, 0, 0, 2)) + b"\x13\x88\x13\x89" + bytes(8)
"""A frame from 10.0.0.1:5000 to 10.0.0.2:5001."""


@pytest.fixture
def one() -> Iterator[Served]:
    with served() as switch:
        switch.switch.install(switch.switch.load((PROGRAMS / "egress_rewrite.json").read_bytes()))
        yield switch


def watched(one: Served) -> int:
    return len(one.switch._watches)


def run(one: Served, *words: str, frames: Sequence[tuple[int, bytes]] = ()) -> click.testing.Result:
    """Run `p4reduce switch trace`; the frames come to their ports once it watches. At its limit the service ends."""
    ended = threading.Event()

    def send() -> None:
        try:
            wait_until(lambda: watched(one) == 1 or ended.is_set())
            for port, frame in frames:
                one.switch.receive(port, frame)
        finally:
            if not ended.wait(LIMIT_S):
                one.server.stop()

    sender = threading.Thread(target=send)
    sender.start()
    result = click.testing.CliRunner().invoke(switch, ["trace", "--p4runtime", one.address, *words])
    ended.set()
    sender.join(LIMIT_S)
    return result


def test_the_command_shows_the_frames_of_a_flow_until_their_number(one: Served) -> None:
    other = UDP[:29] + b"\x07" + UDP[30:]
    frames = [(4, other), (3, UDP), (4, UDP), (4, b"short"), (4, UDP), (4, UDP)]
    result = run(one, "--src", "10.0.0.1:5000", "--dst", "10.0.0.2", "--port", "4", "--count", "2", frames=frames)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line for line in lines if "received" in line] == [
        f"{number}.0  received at port 4: {len(UDP)} bytes {UDP.hex()}" for number in (0, 1)
    ]
    wait_until(lambda: watched(one) == 0)


def test_bytes_with_a_mask_choose_frames(one: Served) -> None:
    frames = [(1, b"\x0f" + bytes(20)), (2, b"\xf7" + bytes(20))]
    result = run(one, "--bytes", "0=f0/f0", "--count", "1", "--format", "bmv2", frames=frames)
    assert "ingress_port: 2" in result.output and "ingress_port: 1" not in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--bytes", "0=xy"), "'0=xy' is not OFFSET=HEX[/MASK]"),
        (("--bytes", "0=ff/ffff"), "their mask has another length"),
        (("--src", "10.0.0"), "'10.0.0' is not IP[:PORT]"),
    ],
)
def test_a_wrong_filter_is_an_error(one: Served, words: tuple[str, ...], message: str) -> None:
    result = run(one, *words)
    assert result.exit_code != 0
    assert message in result.output
    assert watched(one) == 0


def test_a_client_that_leaves_ends_its_trace_at_once(one: Served) -> None:
    with grpc.insecure_channel(one.address) as channel:
        stub: Any = trace_pb2_grpc.PacketTracesStub(channel)  # type: ignore[no-untyped-call]
        for _ in range(20):  # more than calls may be in progress at a time
            call = stub.Watch(pb.WatchRequest(), timeout=LIMIT_S)
            assert next(call) == pb.WatchReply()
            assert watched(one) == 1
            call.cancel()
            wait_until(lambda: watched(one) == 0)


def test_a_program_that_was_compiled_before_a_trace_is_traced_too_and_few_trace_at_once(
    one: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = one.switch.load((PROGRAMS / "l2.json").read_bytes())
    clients = MAX_WATCHES + 4
    together, compile_traced = threading.Barrier(clients), one.switch._trace

    def trace(traced: Program | None) -> None:
        together.wait(LIMIT_S)  # as where all clients wait for the compilation
        compile_traced(traced)

    monkeypatch.setattr(one.switch, "_trace", trace)
    with grpc.insecure_channel(one.address) as channel:
        stub: Any = trace_pb2_grpc.PacketTracesStub(channel)  # type: ignore[no-untyped-call]
        calls = []
        for call in [stub.Watch(pb.WatchRequest(packets=1), timeout=LIMIT_S) for _ in range(clients)]:
            try:
                assert next(call) == pb.WatchReply()
                calls.append(call)
            except grpc.RpcError as error:
                assert "8 clients trace packets already" in str(error)
        assert len(calls) == MAX_WATCHES
        monkeypatch.undo()
        one.switch.install(program)
        one.switch.receive(1, UDP)
        assert all(b"received" in next(call).trace for call in calls)


def test_a_trace_of_one_frame_ends_when_its_copies_have_left_their_queue(one: Served) -> None:
    program = one.switch.load((PROGRAMS / "timed" / "queues.json").read_bytes())
    one.switch.install(program)
    one.switch.queues.blocked.add(2)  # as a port without room
    to_2 = bytes((2, 0)) + bytes(22)
    with grpc.insecure_channel(one.address) as channel:
        stub: Any = trace_pb2_grpc.PacketTracesStub(channel)  # type: ignore[no-untyped-call]

        def begin() -> Any:
            call = stub.Watch(pb.WatchRequest(packets=1), timeout=LIMIT_S)
            next(call)
            one.switch.receive(1, to_2)
            return call

        call = begin()
        assert b'"queued"' in next(call).trace
        time.sleep(2 * POLL_S)  # the service has looked whether that was all
        one.switch.queues.blocked.clear()
        one.switch._depart(program)
        assert [b'"sent"' in reply.trace for reply in call] == [True]

        one.switch.queues.blocked.add(2)
        call = begin()
        one.switch.install(one.switch.load((PROGRAMS / "timed" / "queues.json").read_bytes()))
        assert len(list(call)) == 1, "another program's queues are empty"

        one.switch.queues.set_depth(QueueSetting(0), 0)
        assert [b"its queue is full" in reply.trace for reply in begin()] == [True]


def test_a_switch_that_turns_no_trace_on_is_an_error(one: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "STARTS_WITHIN_S", 0.1)
    with one.switch._compiling_traces:  # as where another trace compiles without end
        result = run(one)
    assert result.exit_code == 1
    assert f"the switch at {one.address} did not turn the trace on within 0.1 s: see its log" in result.output


@pytest.mark.parametrize(("levels", "expected"), [("TDE", "DT"), ("DE", "D")])
def test_the_drop_in_logs_a_packet_at_the_levels_of_bmv2(
    one: Served, caplog: pytest.LogCaptureFixture, levels: str, expected: str
) -> None:
    traces: list[PacketTrace] = []
    program = one.switch.program
    assert program is not None
    program.trace_with(program.compiled.traced())
    program.process(1, UDP, traces.append)
    with caplog.at_level("INFO", "p4.packets"):
        bmv2_cli._log_packet(levels, traces[0])
    lines = [bmv2_cli._Line().format(record) for record in caplog.records]
    assert {line.split("] [")[2] for line in lines} == set(expected)
    assert lines[0].partition("[thread ")[2].partition("] ")[2] == "[0.0] [cxt 0] Processing packet received on port 1"

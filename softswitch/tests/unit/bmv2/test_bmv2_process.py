"""p4reduce-simple-switch as a process: started as scripts start simple_switch_grpc."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conformance.case import PROGRAMS
from p4reduce_switch.ports.ethernet import EthernetPorts
from p4reduce_switch.switch import Switch
from rigs.limits import LIMIT_S
from rigs.p4rt import DEVICE_CONFIG, code_of, config, primary, ready
from rigs.ports import own_address

QUEUES = PROGRAMS / "timed" / "queues.json"
"""Sends each frame to the port of its first byte, with the priority of its second."""


class Started:
    """The process, ready."""

    def __init__(self, address: str, general: str, target: str = "") -> None:
        command = [sys.executable, "-m", "p4reduce_switch.bmv2", *general.split()]
        self.process = subprocess.Popen(
            [*command, "--", "--grpc-server-addr", address, *target.split()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == f"Server listening on {address}\n":
                return
        raise AssertionError(self.process.communicate(timeout=LIMIT_S))

    def end(self) -> tuple[str, str]:
        """End it by SIGTERM; return what it has written since it was ready, and its errors."""
        self.process.send_signal(signal.SIGTERM)
        out, err = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == 0, err
        return out, err


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Compile the kernels first: a process that waits for another's compilation says so on stderr."""
    switch = Switch()
    switch.add_ports(EthernetPorts({}))
    switch.prepare()
    switch.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Started]]:
    """Start processes; they are ended at the latest after the test."""
    started: list[Started] = []

    def begin(address: str, general: str, target: str = "") -> Started:
        started.append(Started(address, general, target))
        return started[-1]

    yield begin
    for one in started:
        one.process.kill()
        one.process.communicate(timeout=LIMIT_S)


@pytest.mark.processes
def test_a_controller_sets_the_program_of_a_switch_that_began_without_also_when_nobody_reads(
    start: Callable[..., Started], tmp_path: Path
) -> None:
    address = f"unix:{tmp_path}/p4runtime"
    switch = start(address, "--no-p4 --device-id 5 --thrift-port 9090")
    with primary(address, device_id=5) as client:
        assert code_of(client.get_config) == "FAILED_PRECONDITION"
        client.set_config(config=config())
        assert client.get_config().p4_device_config == DEVICE_CONFIG
    out, err = switch.end()
    assert out == ""
    assert err.count("\n") == err.count("--thrift-port has no effect") == 1
    check_closed_stdout(tmp_path / "errors")


def check_closed_stdout(errors: Path) -> None:
    """The switch goes on when the reading end of its stdout is closed, before it is ready or while it runs."""
    for was_ready in (False, True):
        address = own_address()
        options = ["--no-p4", "--log-console", "--", "--grpc-server-addr", address]
        command = [sys.executable, "-m", "p4reduce_switch.bmv2", *options]
        with errors.open("wb") as written:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=written, text=True)
        with process:
            assert process.stdout is not None
            if was_ready:
                assert process.stdout.readline() == f"Server listening on {address}\n"
            process.stdout.close()
            ready(address, process)
            with primary(address, device_id=0) as client:  # each event is logged
                client.set_config(config=config())
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT_S) == 0
        assert errors.read_text() == ""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="takes root: network interfaces")
def test_frames_are_recorded_and_logged_and_a_depth_is_set_while_they_pass(
    start: Callable[..., Started], tmp_path: Path, pair: tuple[str, str]
) -> None:
    (inner, outer), address, before_ns = pair, own_address(), time.time_ns()
    general = f"-i 1@{inner} --pcap {tmp_path} --log-console --dump-packet-data 2 {QUEUES}"
    switch = start(address, general, "--priority-queues 2")
    cli = [sys.executable, "-m", "p4reduce_switch.bmv2.runtime_cli", "--grpc-addr", address]
    done = subprocess.run(cli, input="set_queue_depth 0 1 0\n", text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0
    sent = [bytes((1, priority)) + bytes(22) for priority in (0, 0, 0, 1)]
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as host:
        host.bind((outer, 3))
        for frame in sent:
            host.send(frame)
        assert select.select([host], [], [], LIMIT_S)[0]
        left = host.recv(4096)
        assert left[:2] == bytes((1, 1)), "of the other queue"
    out, _ = switch.end()
    assert "queue was full port=1 priority=0 dropped=3\n" in out
    assert f"Received packet of length {len(left)} on port 1: 01 00\n" in out
    assert f"Sending packet of length {len(left)} on port 1: 01 01\n" in out
    for direction, frames in (("in", sent), ("out", [left])):
        recorded = _pcap(tmp_path / f"{inner}_{direction}.pcap")
        assert [frame for _, frame in recorded] == frames
        assert all(before_ns <= at_ns <= time.time_ns() for at_ns, _ in recorded)


def _pcap(path: Path) -> list[tuple[int, bytes]]:
    """Return time in ns and bytes of each frame, as the format defines them (draft-ietf-opsawg-pcap)."""
    data = path.read_bytes()
    magic, major, minor, _, _, _, link = struct.unpack_from("<IHHIIII", data)
    assert (magic, major, minor, link) == (0xA1B23C4D, 2, 4, 1)
    found, at = [], 24
    while at < len(data):
        seconds, nanoseconds, taken, length = struct.unpack_from("<IIII", data, at)
        assert taken == length
        found.append((seconds * 1_000_000_000 + nanoseconds, data[at + 16 : at + 16 + taken]))
        at += 16 + taken
    return found

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
from queue import SimpleQueue

import grpc
import pytest

from p4reduce_controller.p4runtime import Client
from p4reduce_lab.addresses import answers
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4.v1 import p4runtime_pb2_grpc
from p4reduce_runtime.p4runtime.errors import P4RuntimeError
from rigs.certificates import Bench
from rigs.limits import LIMIT_S
from rigs.p4rt import DEVICE_CONFIG, P4INFO
from rigs.ports import own_address

LOG_PROGRAM = Path(__file__).parents[2] / "conformance" / "programs" / "digest_and_log.json"
"""Sends each frame to port 1, and says "b is" and its second byte."""
QUEUES = LOG_PROGRAM.parent / "timed" / "queues.json"
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


def test_a_controller_sets_the_program_of_a_switch_that_began_without(
    start: Callable[..., Started], tmp_path: Path
) -> None:
    address = f"unix:{tmp_path}/p4runtime"
    switch = start(address, "--no-p4 --device-id 5 --thrift-port 9090")
    with Client(address, device_id=5) as client:
        assert client.get_pipeline() is None
        client.set_pipeline(P4INFO, DEVICE_CONFIG)
        found = client.get_pipeline()
        assert found is not None
        assert found.device_config == DEVICE_CONFIG
    out, err = switch.end()
    assert out == ""
    assert err.count("\n") == err.count("--thrift-port has no effect") == 1


def test_a_packet_out_without_a_cpu_port_is_refused_by_name(start: Callable[..., Started], tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/p4runtime"
    start(address, "--no-p4")
    with grpc.insecure_channel(address) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        requests: SimpleQueue[p4r.StreamMessageRequest] = SimpleQueue()
        answers = stub.StreamChannel(iter(requests.get, None), timeout=LIMIT_S)
        arbitration = p4r.StreamMessageRequest()
        arbitration.arbitration.election_id.low = 1
        requests.put(arbitration)
        next(answers)
        config = p4r.SetForwardingPipelineConfigRequest(action="VERIFY_AND_COMMIT", election_id={"low": 1})
        config.config.p4info.CopyFrom(P4INFO)
        config.config.p4_device_config = DEVICE_CONFIG
        stub.SetForwardingPipelineConfig(config, timeout=LIMIT_S)
        requests.put(p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=b"\0" * 14)))
        found = next(answer.error.message for answer in answers if answer.HasField("error"))
        assert "--cpu-port" in found


def test_over_tls_clients_need_no_role_of_ours(start: Callable[..., Started], tmp_path: Path) -> None:
    bench, address = Bench(tmp_path), f"unix:{tmp_path}/p4runtime"
    files = bench.of("switch")
    tls = f"--grpc-server-ssl --grpc-server-cert {files.certificate} --grpc-server-key {files.key}"
    start(address, "--no-p4", tls)
    credentials = grpc.ssl_channel_credentials(files.ca.read_bytes())
    options = [("grpc.ssl_target_name_override", "switch.p4reduce")]
    with grpc.secure_channel(address, credentials, options) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        assert stub.Capabilities(p4r.CapabilitiesRequest(), timeout=LIMIT_S).p4runtime_api_version == "1.3.0"
    with pytest.raises(P4RuntimeError), Client(address, device_id=0, timeout_s=2.0):
        raise AssertionError("without TLS it must not connect")


@pytest.mark.parametrize("content", [None, "{}"])
def test_the_error_names_a_program_that_cannot_be_loaded(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    command = [
        sys.executable,
        "-m",
        "p4reduce_switch.bmv2",
        str(path),
        "--",
        "--grpc-server-addr",
        f"unix:{tmp_path}/p",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 1
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", ["before it is ready", "while it runs"])
def test_a_switch_whose_stdout_nobody_reads_any_more_runs_on(closed: str) -> None:
    address = own_address()
    command = [sys.executable, "-m", "p4reduce_switch.bmv2", "--no-p4", "--log-console"]
    with subprocess.Popen(
        [*command, "--", "--grpc-server-addr", address], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            if closed == "while it runs":
                assert process.stdout.readline() == f"Server listening on {address}\n"
            process.stdout.close()
            deadline = time.monotonic() + LIMIT_S
            while not answers(address):
                assert process.poll() is None and time.monotonic() < deadline, process.stderr.read()
                time.sleep(0.1)
            with Client(address, device_id=0) as client:  # each event is logged
                client.set_pipeline(P4INFO, DEVICE_CONFIG)
            process.send_signal(signal.SIGTERM)
            assert process.wait(LIMIT_S) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


@pytest.mark.root
def test_a_program_without_p4info_runs_and_its_frames_are_recorded(
    start: Callable[..., Started], tmp_path: Path, pair: tuple[str, str]
) -> None:
    inner, outer = pair
    before_ns = time.time_ns()
    general = f"-i 1@{inner} --pcap {tmp_path} --log-console --dump-packet-data 3 {LOG_PROGRAM}"
    switch = start(f"unix:{tmp_path}/p4runtime", general)
    frame = bytes.fromhex("0107020000000001") + b"anything" * 10
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as host:
        host.bind((outer, 3))
        host.send(frame)
        assert select.select([host], [], [], LIMIT_S)[0]
        assert host.recv(4096) == frame
    out, _ = switch.end()
    assert "p4: b is 7\n" in out
    assert f"Received packet of length {len(frame)} on port 1: 01 07 02\n" in out
    assert f"Sending packet of length {len(frame)} on port 1: 01 07 02\n" in out
    for direction in ("in", "out"):
        ((at_ns, recorded),) = _pcap(tmp_path / f"{inner}_{direction}.pcap")
        assert recorded == frame
        assert before_ns <= at_ns <= time.time_ns()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="takes root: network interfaces")
def test_a_depth_is_set_while_frames_pass_and_the_log_has_what_was_dropped(
    start: Callable[..., Started], pair: tuple[str, str]
) -> None:
    (inner, outer), address = pair, own_address()
    switch = start(address, f"-i 1@{inner} --log-console {QUEUES}", "--priority-queues 2")
    cli = [sys.executable, "-m", "p4reduce_switch.bmv2.runtime_cli", "--grpc-addr", address]
    done = subprocess.run(cli, input="set_queue_depth 0 1 0\n", text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as host:
        host.bind((outer, 3))
        for priority in (0, 0, 0, 1):
            host.send(bytes((1, priority)) + bytes(22))
        assert select.select([host], [], [], LIMIT_S)[0]
        assert host.recv(4096)[:2] == bytes((1, 1)), "of the other queue"
    out, _ = switch.end()
    assert "queue was full port=1 priority=0 dropped=3\n" in out


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

"""The whole switch process: started, used by a controller and a worker, ended by a signal."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from p4reduce_controller.p4runtime import Client
from p4reduce_runtime import pipeline_folders
from p4reduce_switch.cli import switch as switch_command
from p4reduce_switch.ports.udp import UdpUnderlay
from p4reduce_switch.run import SwitchError, SwitchOptions, _ports, run_switch
from p4reduce_switch.switch import Switch
from rigs.limits import LIMIT_S

RUN = "import sys; from p4reduce_switch.run import *; run_switch(SwitchOptions(*eval(sys.argv[1])))"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate(timeout=LIMIT_S)


def start(started: list[subprocess.Popen[str]], pipeline: str | None) -> tuple[subprocess.Popen[str], str]:
    options = (pipeline, "127.0.0.1:0", (), "127.0.0.1:0")
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, repr(options)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    started.append(process)
    assert process.stdout is not None
    return process, process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_process_reports_when_it_is_ready_and_ends_with_status_0(
    started: list[subprocess.Popen[str]], number: int
) -> None:
    process, line = start(started, None)
    found = re.fullmatch(r"switch 1 ready: UDP (\S+); P4Runtime (\S+); pipeline none yet.*\n", line)
    assert found is not None, line
    with Client(found[2]) as client:
        assert client.get_pipeline() is None
        process.send_signal(number)
        out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out, err) == (0, "", "")


def test_a_worker_s_hello_reaches_the_controller(started: list[subprocess.Popen[str]]) -> None:
    """A HELLO from a UDP socket arrives at the controller with the worker's true port and addresses."""
    from queue import SimpleQueue

    from p4reduce_controller.p4runtime import TableEntry

    _, line = start(started, "small")
    underlay, p4runtime = re.findall(r"127\.0\.0\.1:\d+", line)
    packets: SimpleQueue[tuple[bytes, dict[str, int]]] = SimpleQueue()
    client = Client(p4runtime)
    client.on_packet_in = lambda payload, metadata: packets.put((payload, metadata))
    with client, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as worker:
        found = client.get_pipeline()
        assert found is not None
        assert found.device_config == (pipeline_folders.find("small") / pipeline_folders.PROGRAM).read_bytes()
        client.insert(TableEntry("switch_address", {"target_ip": 0x7F000001}, "is_switch", {"mac": 0x020000000001}))
        hello = bytes.fromhex("24 07 00 00 0000 0000 00000000 00000000 0123456789abcdef")
        host, _, port = underlay.rpartition(":")
        worker.sendto(hello, (host, int(port)))
        payload, metadata = packets.get(timeout=LIMIT_S)
        assert payload[42:] == hello
        assert payload[26:30] == bytes([127, 0, 0, 1])
        assert int.from_bytes(payload[34:36], "big") == worker.getsockname()[1]
        assert metadata["ingress_port"] == 1


def test_the_error_names_an_address_in_use() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = "{}:{}".format(*taken.getsockname())
        with pytest.raises(SwitchError, match=f"{address}.*--p4runtime"):
            run_switch(SwitchOptions(listen="127.0.0.1:0", p4runtime=address))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as used:
        used.bind(("127.0.0.1", 0))
        address = "{}:{}".format(*used.getsockname())
        with pytest.raises(SwitchError, match=f"{address}.*--listen"):
            run_switch(SwitchOptions(listen=address, p4runtime="127.0.0.1:0"))


def test_gso_is_turned_off_for_all_peers() -> None:
    for gso, plain in (("off", True), ("auto", False)):
        switch = Switch()
        ports, _ = _ports(SwitchOptions(listen="127.0.0.1:0", gso=gso), switch)
        assert isinstance(ports, UdpUnderlay)
        ports._table.add(1, 0x7F000001, 7, bytes(42), 0, 0)
        assert ports._table.peers.destinations["plain"][1] == plain
        ports.close()
        switch.close()


def test_the_ready_line_names_the_uplink() -> None:
    switch = Switch()
    ports, words = _ports(SwitchOptions(listen="127.0.0.1:0", uplink="127.0.0.1:5000"), switch)
    assert isinstance(ports, UdpUnderlay)
    assert words == "UDP {}:{}, uplink 500@127.0.0.1:5000".format(*ports.address)
    ports.close()
    switch.close()


def test_invalid_uplink_options_are_refused() -> None:
    with pytest.raises(SwitchError, match="among interfaces the uplink is a port like the others"):
        run_switch(SwitchOptions(interfaces=("1@lo",), uplink="127.0.0.1:5000", p4runtime="127.0.0.1:0"))
    with pytest.raises(SwitchError, match="neither may use UDP port 21072"):
        run_switch(SwitchOptions(listen="127.0.0.1:0", uplink="127.0.0.1:21072", p4runtime="127.0.0.1:0"))
    refused = CliRunner().invoke(switch_command, ["run", "--uplink", "127.0.0.1"])
    assert refused.exit_code == 2 and "must be HOST:PORT like 127.0.0.1:9600, not '127.0.0.1'" in refused.output


def test_invalid_interface_options_are_refused() -> None:
    for interfaces in [("1@no_such_dev",), ("1@a", "1@b"), ("1@a", "2@a"), ("nonsense",)]:
        with pytest.raises(SwitchError):
            run_switch(SwitchOptions(interfaces=interfaces, p4runtime="127.0.0.1:0"))


def test_the_error_names_a_pipeline_that_cannot_be_loaded(tmp_path: Path) -> None:
    for name in (pipeline_folders.PROGRAM, pipeline_folders.GEOMETRY):
        (tmp_path / name).write_text("{}")
    (tmp_path / pipeline_folders.P4INFO).write_text("pkg_info {}")
    with pytest.raises(SwitchError, match="cannot be loaded"):
        run_switch(SwitchOptions(str(tmp_path), "127.0.0.1:0", p4runtime="127.0.0.1:0"))

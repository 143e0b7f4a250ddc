"""`p4reduce switch run`: a program of the user, what its options do, and what is refused."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

from conformance.case import PROGRAMS
from p4reduce_runtime import pipeline_folders
from p4reduce_runtime.p4runtime.schema import Schema
from p4reduce_runtime.underlay import pack_hello
from p4reduce_switch.cli import switch as switch_command
from p4reduce_switch.ports.udp import UdpUnderlay
from p4reduce_switch.run import SwitchError, SwitchOptions, _files, _ports, run_switch
from p4reduce_switch.switch import Switch
from rigs import entity_text
from rigs.limits import LIMIT_S
from rigs.p4rt import code_of, primary

COMMAND = (sys.executable, "-c", "from p4reduce_switch.cli import switch; switch()")
BIG = 100 << 20
I = "MainIngress."  # noqa: E741


def copied(folder: Path, ending: str = ".p4info.txtpb") -> Path:
    """The action selector's program as a P4 user has it: two files."""
    program = folder / "my.json"
    shutil.copy(PROGRAMS / "action_selector.json", program)
    shutil.copy(PROGRAMS / "action_selector.p4info.txtpb", program.with_suffix(ending))
    return program


@pytest.mark.fault("large writes without a certificate: dropped before they are parsed, memory stays")
@pytest.mark.processes
def test_it_loads_the_users_program_serves_metrics_and_keeps_no_refused_write(tmp_path: Path) -> None:
    program = copied(tmp_path)
    where = ("--listen", "127.0.0.1:0", "--p4runtime", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--log-json")
    with (tmp_path / "log").open("w") as log:
        command = [*COMMAND, "run", "--pipeline", str(program), *where]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    first_line = process.stdout.readline()
    try:
        assert re.fullmatch(rf"switch 1 ready: UDP \S+; P4Runtime \S+; pipeline {program}.*\n", first_line)
        addresses = dict(re.findall(r"(UDP|P4Runtime|metrics) (?:http://)?(127\.0\.0\.1:\d+)", first_line))
        with primary(addresses["P4Runtime"]) as switch:
            found = switch.get_config()
            assert found.p4_device_config == program.read_bytes()
            schema = Schema.from_p4info(found.p4info)
            texts = [entity_text.member("members", port, (I + "send", port)) for port in (1, 2)]
            texts.append(entity_text.group("members", 1, [(1, 3, 0), (2, 1, 0)]))
            texts.append(entity_text.entry("t", entity_text.prefix(0x10, 4), entity_text.to_group(1)))
            switch.insert(*(entity_text.entity(schema, text) for text in texts))
        host, _, port = addresses["UDP"].rpartition(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as worker:
            worker.connect((host, int(port)))
            worker.send(pack_hello(1, 2))
            url, deadline = f"http://{addresses['metrics']}/metrics", time.monotonic() + LIMIT_S
            while 'p4reduce_switch_in_frames_total{kind="udp",port=""} 1.0' not in (text := scraped(url)):
                assert time.monotonic() < deadline, text
        before = resident_bytes(process.pid)
        with grpc.insecure_channel(addresses["P4Runtime"], options=[("grpc.max_send_message_length", -1)]) as channel:
            write = channel.unary_unary("/p4.v1.P4Runtime/Write")
            with ThreadPoolExecutor(3) as pool:
                codes = list(pool.map(lambda _: code_of(write, bytes(BIG), timeout=LIMIT_S), range(6)))
        assert codes == ["RESOURCE_EXHAUSTED"] * 6
        assert resident_bytes(process.pid) - before < 2 * BIG  # the allocator keeps 60 to 130 MB of the 600
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert '"event": "port given"' in (tmp_path / "log").read_text()


def scraped(url: str) -> list[str]:
    with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
        return str(answer.read().decode()).splitlines()


def resident_bytes(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


@pytest.mark.parametrize("ending", [".p4info.txtpb", ".p4info.txt"])
def test_the_p4info_beside_a_program_has_one_of_two_names(tmp_path: Path, ending: str) -> None:
    program = copied(tmp_path, ending)
    assert _files(str(program)) == (program, program.with_suffix(ending))


def test_the_error_names_a_missing_file(tmp_path: Path) -> None:
    program = tmp_path / "my.json"

    def fails(message: str) -> None:
        with pytest.raises(SwitchError, match=message):
            run_switch(SwitchOptions(str(program), "127.0.0.1:0", p4runtime="127.0.0.1:0"))

    fails("there is no file .*my.json; write it with: p4c-bm2-ss")
    with pytest.raises(SwitchError, match=r"compile my.p4 first: p4c-bm2-ss .* -o my.json my.p4"):
        _files("my.p4")
    program.write_text("{}")
    fails("there is no P4Info beside .*my.json; write it with: p4c-bm2-ss --p4runtime-files .*my.p4info.txtpb")
    info = program.with_suffix(".p4info.txtpb")
    info.write_text("nonsense")
    fails("cannot be loaded: not a P4Info")
    info.write_text("pkg_info {}")
    fails("cannot be loaded")


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
        with pytest.raises(SwitchError, match=f"{address}.*is another switch running.*--listen"):
            run_switch(SwitchOptions(listen=address, p4runtime="127.0.0.1:0"))


def test_gso_is_turned_off_for_all_peers() -> None:
    for gso, plain in (("off", True), ("auto", False)):
        switch = Switch()
        ports, _ = _ports(SwitchOptions(listen="127.0.0.1:0", gso=gso), switch)
        assert isinstance(ports, UdpUnderlay)
        ports._table.add(1, 0x7F000001, 7, bytes(42), 0)
        assert ports._table.peers.destinations["plain"][1] == plain
        ports.close()
        switch.close()


def test_the_ready_line_names_the_uplink_and_addresses_may_be_names() -> None:
    switch = Switch()
    ports, words = _ports(SwitchOptions(listen="localhost:0", uplink="localhost:5000"), switch)
    assert isinstance(ports, UdpUnderlay)
    assert words == "UDP {}:{}, uplink 500@localhost:5000".format(*ports.address)
    assert ports.address[0] == "127.0.0.1" and ports.uplink == ("127.0.0.1", 5000)
    ports.close()
    switch.close()


def test_invalid_uplink_options_are_refused() -> None:
    with pytest.raises(SwitchError, match="among interfaces the uplink is a port like the others"):
        run_switch(SwitchOptions(interfaces=("1@lo",), uplink="127.0.0.1:5000", p4runtime="127.0.0.1:0"))
    with pytest.raises(SwitchError, match="neither may use UDP port 21072"):
        run_switch(SwitchOptions(listen="127.0.0.1:0", uplink="127.0.0.1:21072", p4runtime="127.0.0.1:0"))
    with pytest.raises(SwitchError, match=r"'::1' in ::1:0 has no IPv4 address \(.*\): name a host that has one"):
        run_switch(SwitchOptions(listen="::1:0", p4runtime="127.0.0.1:0"))
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

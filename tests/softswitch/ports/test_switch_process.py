"""What `p4reduce switch run` refuses, and what its options do; tests/system has the process."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from p4reduce_runtime import pipeline_folders
from p4reduce_switch.cli import switch as switch_command
from p4reduce_switch.ports.udp import UdpUnderlay
from p4reduce_switch.run import SwitchError, SwitchOptions, _ports, run_switch
from p4reduce_switch.switch import Switch


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

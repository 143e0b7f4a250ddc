"""Pcap files of interfaces; the frames of real interfaces are in test_bmv2_process.py."""

from __future__ import annotations

import logging
import struct
from pathlib import Path

import pytest

from p4reduce_switch.ports import PortError
from p4reduce_switch.ports.capture import Capture, CapturedPorts, PcapFile


def test_each_frame_is_in_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "s1-eth1_in.pcap"
    file = PcapFile(path)
    for frame in (b"one", b"", b"three" * 100):
        before = path.stat().st_size
        file.write(frame)
        assert path.stat().st_size == before + 16 + len(frame)
    file.close()
    file.write(b"after the end")
    magic, major, minor = struct.unpack_from("<IHH", path.read_bytes())
    assert (magic, major, minor) == (0xA1B23C4D, 2, 4)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_ends_the_capture_and_not_the_switch(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        file = PcapFile(Path("/dev/full"))
        file.write(b"frame")
    assert [record.getMessage() for record in caplog.records] == [
        "capture ended: cannot write /dev/full: No space left on device"
    ]


def test_a_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(PortError, match="no/folder"):
        PcapFile(tmp_path / "no" / "folder")


def test_a_missing_interface_is_named() -> None:
    with pytest.raises(PortError, match="no interface 'no_such_dev'"):
        CapturedPorts({1: "no_such_dev"}, Capture(Path()))

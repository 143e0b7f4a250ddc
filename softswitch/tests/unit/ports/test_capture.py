"""Pcap files of interfaces; the frames of real interfaces are in test_bmv2_process.py."""

from __future__ import annotations

import logging
import resource
import struct
from pathlib import Path

import pytest

from p4reduce_runtime.records import zeros
from p4reduce_switch.datapath.ethernet import Interface
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


def test_a_full_disk_leaves_whole_frames(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "s1-eth1_in.pcap"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    file = PcapFile(path)
    file.write(bytes(60))
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (130, before[1]))  # of the next frame 30 bytes can be written
        with caplog.at_level(logging.ERROR):
            file.write(bytes(60))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    file.write(b"there is room again")
    assert path.stat().st_size == 24 + 16 + 60
    assert len(caplog.records) == 1


def test_a_file_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with pytest.raises(PortError, match="no/folder"):
        PcapFile(tmp_path / "no" / "folder")


class NarrowLoop:
    """Has room for one frame of two."""

    calls = 0

    def send(self, frames: object) -> bool:
        self.calls += 1
        return self.calls % 2 == 0

    def has_woken(self, port: int) -> bool:
        return True

    def watch_for_room(self, port: int, watch: bool) -> None: ...


def test_a_frame_that_waits_for_its_interface_is_recorded_once(tmp_path: Path) -> None:
    ports = CapturedPorts({}, Capture(tmp_path))
    ports._loop = NarrowLoop()  # type: ignore[assignment]
    ports._native[2] = zeros(Interface)[0]
    ports._waits = True
    ports._departures[2] = PcapFile(tmp_path / "s1-eth2_out.pcap")
    path = tmp_path / "s1-eth2_out.pcap"
    assert ports.send(2, b"frame")
    assert path.stat().st_size == 24
    ports.flush()
    ports.flush()
    assert path.stat().st_size == 24 + 16 + len(b"frame")
    ports.close()


def test_a_missing_interface_is_named() -> None:
    with pytest.raises(PortError, match="no interface 'no_such_dev'"):
        CapturedPorts({1: "no_such_dev"}, Capture(Path()))

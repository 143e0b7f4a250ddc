"""Interfaces whose frames are recorded: in pcap files as BMv2 names them, and in the log.

The frames pass Python one by one.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from p4reduce_switch.ports import PortError
from p4reduce_switch.ports.ethernet import EthernetPorts

_log = logging.getLogger(__name__)

_NANOSECOND_MAGIC: Final = 0xA1B23C4D
_SNAP_BYTES: Final = 1 << 18
_LINKTYPE_ETHERNET: Final = 1


@dataclass(frozen=True)
class Capture:
    """The settings by which frames are recorded."""

    folder: Path | None = None
    """The folder for the files INTERFACE_in.pcap and INTERFACE_out.pcap; None: none are written."""
    dump_bytes: int = 0
    """The first bytes of a frame that are logged; 0: nothing is logged."""


class PcapFile:
    """A pcap file of Ethernet frames with nanoseconds (draft-ietf-opsawg-pcap); each frame is written at once."""

    def __init__(self, path: Path) -> None:
        """Raises PortError when the file cannot be made."""
        try:
            self._file: BinaryIO | None = path.open("wb", buffering=0)
        except OSError as error:
            raise PortError(f"cannot write {path}: {error.strerror}") from error
        self._path = path
        self._bytes = 0
        self._write(struct.pack("<IHHiIII", _NANOSECOND_MAGIC, 2, 4, 0, 0, _SNAP_BYTES, _LINKTYPE_ETHERNET))

    def write(self, frame: bytes) -> None:
        """Add a frame, with the present time. After an error (the disk is full) nothing more is written."""
        seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
        self._write(struct.pack("<IIII", seconds, nanoseconds, len(frame), len(frame)) + frame)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, data: bytes) -> None:
        if self._file is None:
            return
        try:
            if self._file.write(data) == len(data):
                self._bytes += len(data)
                return
            cause = os.strerror(errno.ENOSPC)
        except OSError as error:
            cause = str(error.strerror)
        _log.error("capture ended: cannot write %s: %s", self._path, cause)
        with contextlib.suppress(OSError):
            self._file.truncate(self._bytes)  # a frame of which a part was written
        self.close()


class CapturedPorts(EthernetPorts):
    """Interfaces as ports, whose frames are recorded."""

    def __init__(self, interfaces: dict[int, str], capture: Capture) -> None:
        self._dump_bytes = capture.dump_bytes
        self._arrivals: dict[int, PcapFile] = {}
        self._departures: dict[int, PcapFile] = {}
        super().__init__(interfaces)
        self.recorder = self._arrived
        if capture.folder is None:
            return
        try:
            for port, name in interfaces.items():
                self._arrivals[port] = PcapFile(capture.folder / f"{name}_in.pcap")
                self._departures[port] = PcapFile(capture.folder / f"{name}_out.pcap")
        except PortError:
            self.close()
            raise

    def close(self) -> None:
        super().close()
        for file in (*self._arrivals.values(), *self._departures.values()):
            file.close()

    def _arrived(self, port: int, frame: bytes) -> None:
        self._record("Received", self._arrivals, port, frame)

    def _transmit(self, frames: Sequence[tuple[int, bytes]]) -> bool:
        sent = super()._transmit(frames)
        for port, frame in frames if sent else ():
            self._record("Sending", self._departures, port, frame)
        return sent

    def _record(self, verb: str, files: dict[int, PcapFile], port: int, frame: bytes) -> None:
        if self._dump_bytes:
            shown = frame[: self._dump_bytes].hex(" ")
            _log.info("%s packet of length %d on port %d: %s", verb, len(frame), port, shown)
        if port in files:
            files[port].write(frame)

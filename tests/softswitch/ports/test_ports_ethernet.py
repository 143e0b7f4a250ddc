"""Linux interfaces as ports, on a veth link of the test's own."""

from __future__ import annotations

import os
import socket
import time

import pytest

from p4reduce_switch.datapath import Reason
from p4reduce_switch.fair_lock import FairLock
from p4reduce_switch.ports import PortError
from p4reduce_switch.ports.ethernet import EthernetPorts, parse_interface
from rigs.limits import LIMIT_S


@pytest.mark.parametrize(("text", "found"), [("1@veth1", (1, "veth1")), ("0@eth0.5", (0, "eth0.5"))])
def test_interfaces_are_spelled_as_bmv2_spells_them(text: str, found: tuple[int, str]) -> None:
    assert parse_interface(text) == found


@pytest.mark.parametrize("text", ["veth1", "1@", "@veth1", "-1@veth1", "512@veth1", "1@much_too_long_name", "1@a b"])
def test_invalid_interfaces_are_refused(text: str) -> None:
    with pytest.raises(PortError, match="1@veth1"):
        parse_interface(text)


def test_the_error_names_a_missing_interface() -> None:
    with pytest.raises(PortError, match="no interface 'no_such_dev'"):
        EthernetPorts({1: "no_such_dev"})


def test_the_error_without_permission_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> socket.socket:
        raise PermissionError

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(PortError, match="CAP_NET_RAW"):
        EthernetPorts({1: "lo"})


@pytest.mark.root
def test_frames_pass_in_both_directions_and_are_not_reflected(pair: tuple[str, str]) -> None:
    near, far = EthernetPorts({7: pair[0]}), EthernetPorts({9: pair[1]})
    try:
        frame = bytes.fromhex("020000000099 020000000001 88b5") + b"a frame to another one" * 50
        assert near.send(7, frame)
        near.flush()
        assert not near.send(8, frame)
        assert _frames(far) == [(9, frame)]
        assert far.send(9, frame[::-1])
        far.flush()
        assert _frames(near) == [(7, frame[::-1])], "and not its own frame as well"
        counters = near.counters[7]
        assert (counters.frames_out, counters.bytes_out) == (1, len(frame))
        assert (counters.frames_in, counters.bytes_in) == (1, len(frame))
        near.send(7, bytes(70_000))
        near.flush()
        assert near.counters[7].send_errors == 1
    finally:
        near.close()
        far.close()


def _frames(ports: EthernetPorts) -> list[tuple[int, bytes]]:
    """The test's frames that arrive first; what the kernel itself sends is left out."""
    found: list[tuple[int, bytes]] = []
    reader, writer = os.pipe()
    loop = ports.datapath_loop(reader)
    deadline = time.monotonic() + LIMIT_S
    while not found:
        assert time.monotonic() < deadline
        reason = loop.run_once(FairLock().shared)
        assert reason in (Reason.FRAMES, Reason.YIELD)
        found += [(port, frame) for port, frame in loop.buffers.frames() if len(frame) > 1000]
    os.close(reader)
    os.close(writer)
    return found

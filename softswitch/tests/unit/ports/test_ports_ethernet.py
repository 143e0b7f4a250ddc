"""Linux interfaces as ports, on a veth link of the test's own."""

from __future__ import annotations

import ctypes
import fcntl
import os
import queue
import socket
import struct
import threading

import pytest

from p4reduce_runtime import threads
from p4reduce_switch.ports import PortError, ethernet
from p4reduce_switch.ports.ethernet import EthernetPorts, LinkStates, parse_interface
from rigs.limits import LIMIT_S

CLONE_NEWNET, SIOCSIFFLAGS, IFF_UP = 0x40000000, 0x8914, 1


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


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Whether each interface has a link."""
    up: dict[str, bool] = {}
    monkeypatch.setattr(ethernet, "link_is_up", up.__getitem__)
    return up


def test_a_change_is_reported_once(links: dict[str, bool]) -> None:
    told: list[tuple[int, bool]] = []
    links |= {"a": True, "b": False}
    states = LinkStates({1: "a", 2: "b"}, lambda *change: told.append(change))
    states.poll()
    assert told == [(2, False)], "all are up until they are seen"
    states.poll()
    assert len(told) == 1
    links |= {"a": False, "b": True}
    states.poll()
    assert told[1:] == [(1, False), (2, True)]


def test_link_states_are_polled_by_a_thread(links: dict[str, bool]) -> None:
    told: queue.SimpleQueue[tuple[int, bool]] = queue.SimpleQueue()
    links["a"] = True
    states = LinkStates({7: "a"}, lambda *change: told.put(change))
    states.start()
    try:
        for up in (False, True):
            links["a"] = up
            assert told.get(timeout=LIMIT_S) == (7, up)
    finally:
        states.close()
    links["a"] = False
    assert told.empty()


@pytest.mark.fault("the change of a link meets an unexpected error: it is logged, and the link is polled again")
def test_a_change_that_was_not_taken_is_reported_again(
    links: dict[str, bool], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threads, "_AGAIN_S", 0.0)
    told: queue.SimpleQueue[tuple[int, bool]] = queue.SimpleQueue()
    errors = [ZeroDivisionError()]

    def change(port: int, up: bool) -> None:
        if errors:
            raise errors.pop()
        told.put((port, up))

    links["a"] = True
    states = LinkStates({7: "a"}, change)
    states.start()
    try:
        links["a"] = False
        assert told.get(timeout=LIMIT_S) == (7, False)
    finally:
        states.close()
    assert "the thread link-states failed" in caplog.messages


def test_an_interface_that_is_not_there_has_no_link() -> None:
    assert not ethernet.link_is_up("gone")


@pytest.mark.root
def test_links_are_those_of_the_network_namespace_whatever_sys_shows() -> None:
    """In a new namespace the loopback interface is down, and /sys still shows the one that is up."""
    if os.geteuid():
        pytest.skip("needs root")
    seen = []

    def look() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.unshare(CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())  # of this thread alone
        seen.append(ethernet.link_is_up("lo"))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket.fileno(), SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", IFF_UP))
        seen.append(ethernet.link_is_up("lo"))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(LIMIT_S)
    assert seen == [False, True]


def test_closing_before_the_start_does_nothing() -> None:
    LinkStates({}, lambda *_: None).close()

"""Linux interfaces as ports, on a veth link of the test's own."""

from __future__ import annotations

import queue
import socket
from pathlib import Path

import pytest

from p4reduce_switch.ports import PortError
from p4reduce_switch.ports.ethernet import EthernetPorts, LinkStates, parse_interface
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


def test_a_change_is_reported_once(tmp_path: Path) -> None:
    told: list[tuple[int, bool]] = []
    for name, state in (("a", "up"), ("b", "down"), ("c", "unknown")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "operstate").write_text(state + "\n")
    links = LinkStates({1: "a", 2: "b", 3: "c", 4: "gone"}, lambda *change: told.append(change), tmp_path)
    links.poll()
    assert told == [(2, False), (4, False)], "all are up until they are seen"
    links.poll()
    assert len(told) == 2
    (tmp_path / "a/operstate").write_text("lowerlayerdown")
    (tmp_path / "b/operstate").write_text("up")
    links.poll()
    assert told[2:] == [(1, False), (2, True)]


def test_link_states_are_polled_by_a_thread(tmp_path: Path) -> None:
    told: queue.SimpleQueue[tuple[int, bool]] = queue.SimpleQueue()
    (tmp_path / "a").mkdir()
    (tmp_path / "a/operstate").write_text("up")
    links = LinkStates({7: "a"}, lambda *change: told.put(change), tmp_path)
    links.start()
    try:
        for state, up in (("down", False), ("up", True)):
            (tmp_path / "a/operstate").write_text(state)
            assert told.get(timeout=LIMIT_S) == (7, up)
    finally:
        links.close()
    (tmp_path / "a/operstate").write_text("down")
    assert told.empty()


def test_closing_before_the_start_does_nothing(tmp_path: Path) -> None:
    LinkStates({}, lambda *_: None, tmp_path).close()

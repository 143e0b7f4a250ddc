"""Several controllers: who is primary, who is told, who may write."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import grpc
import pytest

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_switch.p4runtime import server
from rigs.limits import LIMIT_S
from rigs.p4rt import Raw, Served, code_of, config, entry, served

OK, NOT_FOUND, ALREADY_EXISTS = 0, 5, 6
DROP = ("INSERT", entry("prefix_table", "", "drop"))


class Team:
    """Controllers by election id."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        self.address, self.stack = address, stack

    def __getitem__(self, low: int | None) -> Raw:
        return self.stack.enter_context(Raw(self.address, None if low is None else (0, low)))


@pytest.fixture
def team(switch: Served) -> Iterator[Team]:
    with ExitStack() as stack:
        yield Team(switch.address, stack)


def said(update: p4r.MasterArbitrationUpdate) -> tuple[int, int]:
    return update.status.code, update.election_id.low


def test_the_first_controller_is_primary_and_one_with_a_smaller_id_backup(team: Team) -> None:
    first, second = team[5], team[4]
    assert said(first.arbitrate()) == (OK, 5)
    assert said(second.arbitrate()) == (ALREADY_EXISTS, 5)
    first.set_config(config=config())
    assert first.write(DROP) == ["OK"]
    assert code_of(second.write, DROP) == "PERMISSION_DENIED"
    assert code_of(second.set_config, config=config()) == "PERMISSION_DENIED"
    assert len(second.read(entry("prefix_table"))) == 1, "anyone may read"


def test_a_larger_election_id_takes_over_and_all_streams_are_notified(team: Team) -> None:
    first, second = team[5], team[6]
    first.arbitrate()
    assert said(second.arbitrate()) == (OK, 6)
    assert said(first.next().arbitration) == (ALREADY_EXISTS, 6)
    assert code_of(first.set_config, config=config()) == "PERMISSION_DENIED"
    second.set_config(config=config())


def test_after_the_primary_leaves_a_smaller_id_does_not_become_primary(team: Team) -> None:
    first, second, third = team[5], team[4], team[5]
    first.arbitrate()
    second.arbitrate()
    with first:
        pass
    assert said(second.next().arbitration) == (NOT_FOUND, 5)
    assert code_of(second.set_config, config=config()) == "PERMISSION_DENIED"
    assert said(third.arbitrate()) == (OK, 5)
    assert said(second.next().arbitration) == (ALREADY_EXISTS, 5)


def test_a_primary_can_step_down_and_up(team: Team) -> None:
    first, second = team[5], team[4]
    first.arbitrate()
    second.arbitrate()
    first.election_id = (0, 3)
    assert said(first.arbitrate()) == (NOT_FOUND, 5)
    assert said(second.next().arbitration) == (NOT_FOUND, 5)
    first.election_id = (1, 0)
    assert said(first.arbitrate()) == (OK, 0), "the high half counts"
    assert said(second.next().arbitration) == (ALREADY_EXISTS, 0)


def test_a_controller_without_an_election_id_is_never_primary(team: Team) -> None:
    watcher = team[None]
    reply = watcher.arbitrate()
    assert reply.status.code == NOT_FOUND
    assert not reply.HasField("election_id")
    assert code_of(watcher.set_config, config=config()) == "PERMISSION_DENIED"
    assert said(team[0].arbitrate()) == (OK, 0), "an id of 0 is an id"


def test_an_election_id_in_use_ends_the_stream(team: Team) -> None:
    team[5].arbitrate()
    assert code_of(team[5].arbitrate) == "INVALID_ARGUMENT"
    other = team[6]
    other.arbitrate()
    other.election_id = (0, 5)
    assert code_of(other.arbitrate) == "INVALID_ARGUMENT"


def test_devices_and_roles_are_checked(team: Team) -> None:
    assert code_of(team[5].arbitrate, device_id=2) == "NOT_FOUND"
    assert code_of(team[5].arbitrate, role={"name": "other"}) == "INVALID_ARGUMENT"
    moved = team[5]
    moved.arbitrate()
    assert code_of(moved.arbitrate, device_id=2) == "FAILED_PRECONDITION"


def test_at_most_sixteen_controllers(team: Team) -> None:
    for low in range(1, 17):
        assert team[low].arbitrate().status.code == OK
    assert code_of(team[17].arbitrate) == "RESOURCE_EXHAUSTED"


def test_only_the_primary_sends_packets(team: Team) -> None:
    first, second = team[5], team[4]
    first.arbitrate()
    first.set_config(config=config())
    second.arbitrate()
    second.send(packet=p4r.PacketOut(payload=b"x"))
    error = second.next().error
    assert error.canonical_code == grpc.StatusCode.PERMISSION_DENIED.value[0]
    assert error.packet_out.packet_out.payload == b"x"


class Wire:
    """One TCP connection through here to a server, which `cut` ends without a word to either side."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._far = socket.create_connection((host, int(port)))
        self._near: socket.socket | None = None
        self._cut = False
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def cut(self) -> None:
        self._cut = True

    def close(self) -> None:
        for end in (self._near, self._far):
            if end is not None:
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(LIMIT_S)
        for end in (self._near, self._far, self._listener):
            if end is not None:
                end.close()

    def _accept(self) -> None:
        self._near, _ = self._listener.accept()
        back = threading.Thread(target=self._pump, args=(self._far, self._near))
        self._threads.append(back)
        back.start()
        self._pump(self._near, self._far)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                if not self._cut:
                    sink.sendall(data)
        except OSError:
            pass


@contextmanager
def wired(address: str) -> Iterator[Wire]:
    wire = Wire(address)
    try:
        yield wire
    finally:
        wire.close()


def test_a_primary_whose_host_stops_answering_loses_primacy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert server.KEEPALIVE_TIME_MS + server.KEEPALIVE_TIMEOUT_MS <= 30_000
    monkeypatch.setattr(server, "KEEPALIVE_TIME_MS", 300)
    monkeypatch.setattr(server, "KEEPALIVE_TIMEOUT_MS", 300)
    with (
        served() as switch,
        wired(switch.address) as wire,
        Raw(switch.address, (0, 4)) as backup,
        Raw(wire.address, (0, 5)) as vanishing,
    ):
        backup.arbitrate()
        assert said(vanishing.arbitrate()) == (OK, 5)
        assert said(backup.next().arbitration) == (ALREADY_EXISTS, 5)
        wire.cut()
        assert said(backup.next().arbitration) == (NOT_FOUND, 5)

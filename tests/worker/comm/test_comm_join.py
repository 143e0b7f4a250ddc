"""Joining, with a job client that answers what the test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import p4reduce
from p4reduce.errors import ControllerLost, GeometryMismatch, JobReset, JoinError
from p4reduce.heartbeat import Heartbeat
from p4reduce_contracts.jobs import client as jobs
from p4reduce_contracts.jobs import lease
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire import unpack_hello

NONCE = 0xFEED


class FakeClient:
    """Stands for the controller of one test; `instances` are the clients that were made."""

    instances: list[FakeClient]
    answers: dict[str, Callable[[], Any]]
    switch_port = 0
    timeout_s = 1.0

    def __init__(self, address: str) -> None:
        self.address = address
        self.log: list[Any] = []
        self.beaten = threading.Event()
        self.instances.append(self)

    def _answer(self, what: str, default: Any) -> Any:
        return self.answers[what]() if what in self.answers else default

    def join(self, job: str, rank: int, world_size: int) -> jobs.JoinTicket:
        self.log.append(("join", job, rank, world_size))
        ticket = jobs.JoinTicket(NONCE, job, 5, rank, world_size, "127.0.0.1", self.switch_port, 8, 32, 0.01)
        return self._answer("join", ticket)

    def wait_lease(self, nonce: int, timeout_s: float) -> jobs.Lease:
        self.log.append(("wait_lease", nonce))
        lease = jobs.Lease(5, "mnist", 9, 0, 1, 16, 8, 32, 0.01, "127.0.0.1", self.switch_port)
        return self._answer("wait_lease", lease)

    def heartbeat(self, nonce: int) -> tuple[bool, str]:
        answer = self._answer("heartbeat", (False, ""))
        self.beaten.set()
        return answer

    def leave(self, nonce: int) -> None:
        self.log.append(("leave", nonce))

    def close(self) -> None:
        self.log.append("close")


@pytest.fixture
def switch() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(10)
        yield peer


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, switch: socket.socket) -> type[FakeClient]:
    class Client(FakeClient):
        instances: list[FakeClient] = []  # noqa: RUF012
        answers: dict[str, Callable[[], Any]] = {}  # noqa: RUF012
        switch_port = switch.getsockname()[1]

    monkeypatch.setattr(jobs, "JobClient", Client)
    for name in ("RANK", "WORLD_SIZE", "P4REDUCE_JOB", "P4REDUCE_CONTROLLER"):
        monkeypatch.delenv(name, raising=False)
    return Client


def refuse(error: Exception) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


def test_join_says_hello_until_the_lease_and_leaves_on_close(
    fake: type[FakeClient], switch: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("P4REDUCE_JOB", "mnist")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("P4REDUCE_CONTROLLER", "10.0.0.9:9600")

    def lease() -> jobs.Lease:
        for _ in range(3):  # HELLO is repeated for as long as the lease is awaited
            assert unpack_hello(switch.recv(100)) == (5, NONCE)
        return jobs.Lease(5, "mnist", 9, 0, 1, 16, 8, 32, 0.01, "127.0.0.1", fake.switch_port)

    fake.answers["wait_lease"] = lease
    comm = p4reduce.join()
    (client,) = fake.instances
    assert client.address == "10.0.0.9:9600"
    assert (comm.rank, comm.world_size, comm.lease.epoch) == (0, 1, 9)
    assert client.beaten.wait(10)
    comm.close(wait=False)
    assert client.log == [("join", "mnist", 0, 1), ("wait_lease", NONCE), ("leave", NONCE), "close"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "P4REDUCE_JOB"),
        ({"job": "a"}, "set RANK"),
        ({"job": "a", "rank": 0}, "set WORLD_SIZE"),
        ({"job": "a", "rank": 2, "world_size": 2}, "ranks are 0 to 1"),
        ({"job": "a", "rank": -1, "world_size": 2}, "ranks are 0 to 1"),
        ({"job": "a", "rank": 0, "world_size": 1, "timeout_s": 0}, "timeout_s"),
        ({"job": "a", "rank": 0, "world_size": 1, "window": 0}, "window is 0"),
    ],
)
def test_what_is_missing_is_said(fake: type[FakeClient], arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(JoinError, match=message):
        p4reduce.join(**arguments)
    assert fake.instances == []


def test_a_rank_that_is_no_number(fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(JoinError, match="RANK is 'first'"):
        p4reduce.join("a", world_size=2)


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("join", jobs.ControllerUnreachable("no controller at 127.0.0.1:9600: start one")),
        ("join", jobs.UnknownJob("no job 'a'; there is 'b'")),
        ("join", jobs.InvalidRequest("job 'a' has 4 ranks, not 1")),
        ("wait_lease", jobs.LeaseTimeout("rank 1 never joined")),
        ("wait_lease", jobs.MemberReset("rank 0 joined again")),
    ],
)
def test_the_controllers_refusals_become_join_errors(
    fake: type[FakeClient], step: str, error: Exception
) -> None:
    fake.answers[step] = refuse(error)
    with pytest.raises(JoinError) as caught:
        p4reduce.join("a", rank=0, world_size=1)
    assert str(caught.value) == f"rank 0 could not join job 'a': {error}"
    (client,) = fake.instances
    assert client.log[-1] == "close"
    assert (("leave", NONCE) in client.log) == (step == "wait_lease")


def test_a_switch_that_is_away_for_a_moment_is_waited_for(fake: type[FakeClient]) -> None:
    ticket = jobs.JoinTicket(NONCE, "a", 5, 0, 1, "127.0.0.1", fake.switch_port, 8, 32, 0.01)
    answers = [refuse(jobs.SwitchAway("reconnecting")), lambda: ticket]

    def answer() -> Any:
        return answers.pop(0)()

    fake.answers["join"] = answer
    p4reduce.join("a", rank=0, world_size=1).close(wait=False)
    fake.answers["join"] = refuse(jobs.SwitchAway("reconnecting"))
    with pytest.raises(JoinError, match="reconnecting"):
        p4reduce.join("a", rank=0, world_size=1, timeout_s=0.1)


def test_a_pipeline_that_does_not_suit_is_refused(fake: type[FakeClient]) -> None:
    fake.answers["wait_lease"] = lambda: jobs.Lease(
        5, "a", 9, 0, 9, 16, 4, 8, 1.0, "127.0.0.1", fake.switch_port
    )
    with pytest.raises(GeometryMismatch, match="at most 8 ranks"):
        p4reduce.join("a", rank=0, world_size=9)


def beating(fake: type[FakeClient]) -> Heartbeat:
    granted = Lease(5, "a", 9, 0, 1, 16, 8, 32, heartbeat_interval_s=0.01)
    heartbeat = Heartbeat(fake("x"), NONCE, granted)  # type: ignore[arg-type]
    heartbeat._thread.join(10)
    assert not heartbeat._thread.is_alive()
    return heartbeat


@pytest.mark.parametrize("answer", [lambda: (True, "rank 2 left"), refuse(jobs.MemberReset("rank 2 left"))])
def test_a_reset_is_noticed(fake: type[FakeClient], answer: Callable[[], Any]) -> None:
    fake.answers["heartbeat"] = answer
    failure = beating(fake).failure()
    assert isinstance(failure, JobReset)
    assert failure.reason == "rank 2 left"


def test_a_silent_controller_is_tolerated_for_the_dead_time(
    fake: type[FakeClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "DEAD_AFTER_S", 0.2)
    beats: list[int] = []

    def unreachable() -> Any:
        beats.append(1)
        raise jobs.ControllerUnreachable("no answer")

    fake.answers["heartbeat"] = unreachable
    assert isinstance(beating(fake).failure(), ControllerLost)
    assert len(beats) > 1

"""Joining, with a job client that answers what the test says; and what tells one launch from another."""

from __future__ import annotations

import importlib
import logging
import socket
import threading
import time
from datetime import timedelta
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any
from unittest.mock import ANY, DEFAULT, Mock, call, create_autospec

import pytest

import p4reduce
from p4reduce.errors import ControllerLostError, JobResetError, JoinError
from p4reduce.membership.heartbeat import Heartbeat
from p4reduce.membership.join import run_id
from p4reduce.membership.rejoin import Rejoin
from p4reduce.stats import CollectiveStats
from p4reduce_contracts.jobs import client as jobs
from p4reduce_contracts.jobs import errors, lease
from p4reduce_contracts.jobs.answers import SwitchAddress, Usage, WaitingSlot
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from p4reduce_contracts.wire.hello import unpack_hello
from p4reduce_runtime import kernels
from rigs.limits import LIMIT_S, wait_until

NONCE = 0xFEED
AWAY = errors.ControllerUnreachableError("no answer")
join_module = importlib.import_module("p4reduce.membership.join")  # p4reduce.join is the function


@pytest.fixture
def client_class(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """The class JobClient, of which every instance is `client`; variables of the environment name no job."""
    for name in ("RANK", "WORLD_SIZE", "P4REDUCE_JOB", "P4REDUCE_CONTROLLER"):
        monkeypatch.delenv(name, raising=False)
    made: Mock = create_autospec(jobs.JobClient)
    monkeypatch.setattr(jobs, "JobClient", made)
    return made


@pytest.fixture
def client(client_class: Mock, peer: socket.socket) -> Mock:
    """A client that grants rank 0 its lease of a job of one rank, at the switch `peer`; a test changes its answers."""
    client: Mock = client_class.return_value
    port, client.timeout_s = peer.getsockname()[1], 1.0
    client.join.return_value = jobs.JoinTicket(
        NONCE, "a", 5, 0, 1, (SwitchAddress("", "127.0.0.1", port),), 8, 32, 0.01
    )
    client.wait_lease.return_value = Lease(5, "a", 9, 0, 1, 16, 8, 32, 0.01, (LeasedSwitch(port=port),))
    client.get_job.return_value.missing, client.heartbeat.return_value = "", None
    return client


def join_alone(**options: Any) -> p4reduce.Communicator:
    return p4reduce.join("a", rank=0, world_size=1, **options)


def heartbeat_of(client: Any, interval_s: float = 0.01, *before: Heartbeat) -> Heartbeat:
    granted = Lease(5, "a", 9, 0, 1, 16, 8, 32, interval_s)
    return Heartbeat(client, NONCE, granted, client.watch(NONCE), *before)


def test_join_sends_hello_until_the_lease_and_close_leaves_the_job(
    client_class: Mock,
    client: Mock,
    peer: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "p4reduce")
    monkeypatch.setenv("P4REDUCE_JOB", "mnist")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("P4REDUCE_CONTROLLER", "10.0.0.9:9600")

    def lease(*_: Any) -> Any:
        for _ in range(3):  # HELLO is repeated for as long as the lease is awaited
            assert unpack_hello(peer.recv(100)) == (5, NONCE)
        return DEFAULT

    client.wait_lease.side_effect = lease
    comm = p4reduce.join()
    assert client_class.call_args.args == ("10.0.0.9:9600",)
    assert (comm.rank, comm.world_size, comm.lease.epoch) == (0, 1, 9)
    wait_until(lambda: client.heartbeat.called)
    comm.close(wait=False)
    calls = [call for call in client.method_calls if call[0] not in ("watch", "heartbeat")]
    assert [name for name, *_ in calls] == ["join", "wait_lease", "leave", "close"]
    assert [args[:3] for _, args, _ in calls] == [("mnist", 0, 1), (NONCE, ANY), (NONCE,), ()]
    assert "job joined" in caplog.text and str(NONCE) not in caplog.text


@pytest.mark.parametrize("waits_for", ["wait_lease", "join"])
def test_what_a_check_raises_ends_the_wait(waits_for: str, client: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_module, "_CHECK_EVERY_S", 0.01)

    def closed_meanwhile(*_: Any) -> None:
        wait_until(lambda: client.close.called)
        raise errors.JobServiceError("this JobClient was closed")

    waits = {"wait_lease": closed_meanwhile, "join": errors.ControllerUnreachableError("no controller")}
    getattr(client, waits_for).side_effect = waits[waits_for]
    check = Mock(side_effect=ConnectionError("the store has ended"))
    with pytest.raises(JoinError, match="rank 0 could not join job 'a': the store has ended"):
        p4reduce.join("a", rank=0, world_size=2, timeout_s=10 * LIMIT_S, check=check)


@pytest.fixture
def variables(request: pytest.FixtureRequest, client_class: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets variables of the environment, of which `client_class` has taken some out."""
    for name, value in request.param.items():
        monkeypatch.setenv(name, value)


ONE: dict[str, Any] = {"job": "a", "rank": 0, "world_size": 1}


@pytest.mark.parametrize(
    ("variables", "arguments", "message"),
    [
        ({}, {}, "P4REDUCE_JOB"),
        ({}, {"job": "a"}, "set RANK"),
        ({"RANK": "first"}, {"job": "a", "world_size": 2}, "RANK is 'first'"),
        ({}, {"job": "a", "rank": 0}, "set WORLD_SIZE"),
        ({}, ONE | {"rank": 1}, "ranks are 0 to 0"),
        ({}, ONE | {"rank": -1}, "ranks are 0 to 0"),
        ({}, ONE | {"timeout_s": timedelta(0)}, "timeout_s is 0:00:00; give a time to wait"),
        ({}, ONE | {"collective_timeout_s": float("nan")}, "collective_timeout_s is nan"),
        ({"P4REDUCE_INSECURE": "on"}, ONE, "P4REDUCE_INSECURE is 'on'; it has to be 0 or 1"),
    ],
    indirect=["variables"],
)
@pytest.mark.usefixtures("variables")
def test_wrong_and_missing_settings_are_errors_before_joining(
    client_class: Mock, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(JoinError, match=message):
        p4reduce.join(**arguments)
    client_class.assert_not_called()


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("join", errors.UnknownJobError("no job 'a'; there is 'b'")),
        ("join", errors.InvalidRequestError("job 'a' has 4 ranks, not 1")),
        ("wait_lease", errors.LeaseTimeoutError("rank 1 did not join")),
        ("wait_lease", errors.MemberResetError("rank 0 joined again")),
    ],
)
def test_the_controllers_refusals_become_join_errors(client: Mock, step: str, error: Exception) -> None:
    getattr(client, step).side_effect = error
    with pytest.raises(JoinError) as caught:
        join_alone()
    assert str(caught.value) == f"rank 0 could not join job 'a': {error}"
    assert client.leave.call_args_list == ([call(NONCE)] if step == "wait_lease" else [])
    assert client.method_calls[-1] == call.close()


@pytest.mark.fault("the controller never starts: JoinError at the deadline, which names what it waited for")
@pytest.mark.parametrize("kind", [errors.ControllerUnreachableError, errors.SwitchAwayError])
def test_what_does_not_come_is_waited_for_until_the_deadline_and_logged(
    client: Mock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: type[Exception]
) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(join_module, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    client.join.side_effect = kind("none at 127.0.0.1:9600")
    with pytest.raises(JoinError) as caught:
        p4reduce.join("a", rank=3, world_size=4, timeout_s=20.0)
    assert now[0] >= 20.0
    assert str(caught.value) == "rank 3 could not join job 'a' in 20 s: none at 127.0.0.1:9600"
    assert client.join.call_count > 5
    assert client.method_calls[-1] == call.close()
    assert len(caplog.messages) == 4
    start = "rank 3 waits to join job 'a': none at 127.0.0.1:9600 ("
    assert all(message.startswith(start) for message in caplog.messages)


@pytest.mark.usefixtures("client")
def test_kernels_are_loaded_before_the_rank_joins(client_class: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other ranks would wait for this one meanwhile; and no collective needs a lock, or a descriptor for a file."""
    made = []
    for module, name in ((kernels, "preload"), (join_module, "load_pump")):
        monkeypatch.setattr(module, name, lambda *modules: made.append(client_class.call_count))
    join_alone().close(wait=False)
    assert made[:2] == [0, 0], "no client was made yet"


@pytest.mark.fault("the controller starts after join(): join() waits, and joins")
@pytest.mark.parametrize(
    ("step", "refusals", "joins"),
    [
        ("join", [AWAY, AWAY], 3),
        ("join", [errors.SwitchAwayError("reconnecting")], 2),
        ("wait_lease", [AWAY, AWAY], 1),  # a lost connection is none to rejoin
        ("wait_lease", [AWAY, errors.MemberResetError("unknown; join again")], 2),  # of a controller that restarted
    ],
)
def test_join_waits_for_what_comes_late(
    client: Mock, monkeypatch: pytest.MonkeyPatch, step: str, refusals: list[Exception], joins: int
) -> None:
    monkeypatch.setattr(join_module, "_RETRY_S", 0.01)
    getattr(client, step).side_effect = [*refusals, DEFAULT]
    join_alone().close(wait=False)
    assert getattr(client, step).call_count == len(refusals) + 1
    assert (client.join.call_count, client.leave.call_count) == (joins, 1)


def test_missing_ranks_are_logged_while_the_lease_is_awaited(
    client: Mock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(join_module, "_SAY_EVERY_S", 0.02)
    client.get_job.return_value.missing = "no HELLO of rank 2 came through switch b"

    def lease(*_: Any) -> Any:
        wait_until(lambda: client.get_job.called)
        return DEFAULT

    client.wait_lease.side_effect = lease
    join_alone().close(wait=False)
    assert "no HELLO of rank 2 came through switch b" in caplog.messages[0]


def test_the_timeout_of_a_call_is_at_most_the_time_left_for_joining(client: Mock) -> None:
    seen: list[float] = []

    def unreachable(*_: Any, **__: Any) -> Any:
        seen.append(client.timeout_s)
        raise AWAY

    client.join.side_effect = unreachable
    with pytest.raises(JoinError):
        join_alone(timeout_s=0.3)
    assert all(0.1 <= timeout_s <= 0.3 for timeout_s in seen)
    assert client.timeout_s == 1.0


def test_a_controller_beyond_loopback_is_not_joined_in_the_clear() -> None:
    told = r"10\.9\.8\.7:9600 is beyond loopback.* P4REDUCE_CA, P4REDUCE_CERT and P4REDUCE_KEY.*P4REDUCE_INSECURE=1"
    with pytest.raises(JoinError, match=told):
        join_alone(controller="10.9.8.7:9600", token="a token")


@pytest.mark.parametrize(
    ("variables", "arguments", "named", "insecure"),
    [
        ({}, {}, "", False),
        ({}, {"switch": "leaf1", "insecure": True}, "leaf1", True),
        ({"P4REDUCE_SWITCH": "leaf2", "P4REDUCE_INSECURE": "1"}, {}, "leaf2", True),
        ({"P4REDUCE_SWITCH": "leaf2"}, {"switch": "leaf1"}, "leaf1", False),
    ],
    indirect=["variables"],
)
@pytest.mark.usefixtures("variables")
def test_join_passes_on_its_switch_and_whether_plaintext_is_allowed(
    client_class: Mock, client: Mock, arguments: dict[str, Any], named: str, insecure: bool
) -> None:
    join_alone(**arguments).close(wait=False)
    assert (client.join.call_args.kwargs["switch"], client_class.call_args.kwargs["insecure"]) == (named, insecure)


def test_a_worker_that_joins_again_names_the_nonce_it_had(client: Mock) -> None:
    """A controller that was away for long still has it as a member."""
    comm = join_alone(rejoin=True)
    recovery = comm.failure.recovery
    assert isinstance(recovery, Rejoin)
    recovery._join(LIMIT_S).release()
    assert [each.kwargs["former"] for each in client.join.call_args_list] == [0, NONCE]
    comm.close(wait=False)


def beating(client: Mock) -> Heartbeat:
    """Return one whose thread has ended."""
    heartbeat = heartbeat_of(client)
    heartbeat._thread.join(LIMIT_S)
    assert not heartbeat._thread.is_alive()
    return heartbeat


@pytest.mark.parametrize("answer", ["rank 2 left", errors.MemberResetError("rank 2 left")])
def test_a_reset_is_detected_and_logged(
    client: Mock, answer: str | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "p4reduce")
    client.heartbeat.side_effect = [answer]
    failure = beating(client).failure()
    assert isinstance(failure, JobResetError)
    assert failure.reason == "rank 2 left"
    assert caplog.messages == ["job reset"]


def test_a_reset_in_the_watch_needs_no_heartbeat(client: Mock) -> None:
    heartbeat = heartbeat_of(client, 60.0)
    (tell_reset,) = client.watch.return_value.attach.call_args.args
    tell_reset("rank 2 is gone")
    failure = heartbeat.failure()
    assert isinstance(failure, JobResetError)
    assert failure.reason == "rank 2 is gone"
    heartbeat.leave()


def test_a_controller_that_does_not_answer_is_tolerated_for_the_dead_time(
    client: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=lambda: client.heartbeat.call_count * lease.DEAD_AFTER_S / 4)
    monkeypatch.setattr("p4reduce.membership.heartbeat.time", clock)
    client.heartbeat.side_effect = AWAY
    assert isinstance(beating(client).failure(), ControllerLostError)
    assert client.heartbeat.call_count == 4


@pytest.mark.fault("a controller that is up for a few seconds at a time: a heartbeat that failed is tried again soon")
def test_a_failed_heartbeat_is_tried_again_sooner(client: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float | None] = []
    client.heartbeat.side_effect = [None, AWAY, AWAY, None]

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout)
            return client.heartbeat.call_count == 4

    monkeypatch.setattr("p4reduce.membership.heartbeat.threading", SimpleNamespace(Event=Stop, Thread=threading.Thread))
    heartbeat_of(client, 2.0)._thread.join(LIMIT_S)
    assert pauses == [2.0, 2.0, 0.5, 0.5, 2.0]


@pytest.mark.fault(
    "a rank is killed within milliseconds of its grant: the controller notices that its connection ended"
)
def test_a_member_is_watched_before_it_has_its_lease(client: Mock) -> None:
    watch = client.watch.return_value

    def lease(*_: Any) -> Any:
        assert client.watch.call_args_list == [call(NONCE)] and not watch.close.called
        raise errors.LeaseTimeoutError("rank 1 did not join")

    client.wait_lease.side_effect = lease
    with pytest.raises(JoinError):
        join_alone()
    assert watch.close.called, "no more once joining has failed"


@pytest.mark.fault("a closing worker, its controller stopped: close() does not wait for it")
def test_leaving_does_not_wait_for_a_controller_that_has_stopped() -> None:
    """It accepts the connection, as a stopped process's kernel does, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as stopped:
        client = jobs.JobClient(f"127.0.0.1:{stopped.getsockname()[1]}", timeout_s=2 * LIMIT_S)
        heartbeat = heartbeat_of(client)
        time.sleep(0.1)  # a heartbeat is on its way
        begun = time.monotonic()
        heartbeat.leave()
        assert time.monotonic() - begun < LIMIT_S
        heartbeat._thread.join(LIMIT_S)
        assert not heartbeat._thread.is_alive()
        assert heartbeat.failure() is None


def test_heartbeats_carry_the_slot_waited_for_and_hold_no_reference(client: Mock) -> None:
    class Waiting:
        stats = CollectiveStats(collectives=3, bytes_up=700, bytes_down=500, retransmissions=2)

        def waiting(self) -> WaitingSlot:
            return WaitingSlot(3, 7, 0b10, 1.5, 2)

    def told() -> list[WaitingSlot | None]:
        return [slot_wait for _, slot_wait, _ in (each.args for each in client.heartbeat.call_args_list)]

    communicator: Any = Waiting()
    before = heartbeat_of(client)
    before.abandon()
    before.attach(communicator)
    before.reported = CollectiveStats(collectives=1, bytes_up=200)
    heartbeat = heartbeat_of(client, 0.01, before)
    wait_until(lambda: any(told()))
    assert next(filter(None, told())).missing_children == (1,)
    del communicator
    wait_until(lambda: told()[-1] is None)
    heartbeat.leave()
    assert client.leave.call_args.kwargs["usage"] == Usage(2, 500, 500, 2) and heartbeat.reported == Waiting.stats


@pytest.mark.fault("a heartbeat meets an unexpected error: it is logged, and the next ones are sent")
def test_heartbeats_go_on_after_an_unexpected_error(client: Mock, caplog: pytest.LogCaptureFixture) -> None:
    changed = RuntimeError("number of non-zero array elements changed during function execution.")
    communicator = Mock(stats=CollectiveStats(), waiting=Mock(side_effect=chain([changed], repeat(None))))
    heartbeat = heartbeat_of(client)
    heartbeat.attach(communicator)
    wait_until(lambda: communicator.waiting.call_count > 2)
    heartbeat.leave()
    assert heartbeat.failure() is None
    assert "the thread p4reduce-heartbeat-0 failed" in caplog.messages


TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "none",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RESTART_COUNT": "0",
}


def test_ranks_of_one_launch_agree_and_those_of_others_differ() -> None:
    kept = ("MASTER_ADDR", "localhost"), ("TORCHELASTIC_RESTART_COUNT", "1"), ("RANK", "1")
    assert {run_id({**TORCHRUN, name: value}) for name, value in kept} == {run_id(TORCHRUN)} == {"none@29500"}
    others = ("TORCHELASTIC_RUN_ID", "x"), ("MASTER_PORT", "29501")
    assert len({run_id(TORCHRUN), *(run_id({**TORCHRUN, name: value}) for name, value in others)}) == 3
    assert run_id({**TORCHRUN, "TORCHELASTIC_RUN_ID": "x"}) == "x"
    assert run_id({"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}) == "", "it is none of torchrun"

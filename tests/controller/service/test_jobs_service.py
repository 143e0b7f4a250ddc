"""The whole controller over real gRPC on loopback, with the switch in memory and time that passes when told."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import grpc
import pytest

from p4reduce_contracts.jobs.answers import MemberAddress, SwitchAddress
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import (
    ControllerUnreachableError,
    InvalidRequestError,
    JobExistsError,
    JobServiceError,
    LeaseTimeoutError,
    MemberResetError,
    PlaceTakenError,
    SwitchFullError,
    UnknownJobError,
)
from p4reduce_contracts.jobs.lease import ONLY_SWITCH, Lease, LeasedSwitch
from p4reduce_controller.config import Config
from rigs.fake_switch_client import OWN_TABLES, Running, create_and_form, form, make_config, serving
from rigs.limits import LIMIT_S


def test_a_job_from_create_to_remove(running: Running, client: JobClient) -> None:
    made = client.create_job("train", 2, slots=5)
    assert (made.state, made.slots, made.epoch, made.members) == ("FORMING", 5, 0, ())
    tickets, leases = form(running, client, "train", 2)
    assert tickets[0].switches == (SwitchAddress("", "127.0.0.1", 21072),)
    assert leases[1] == Lease(
        made.id,
        "train",
        1,
        1,
        2,
        5,
        4,
        8,
        2.0,
        (LeasedSwitch("127.0.0.1", 21072, leases[1].switches[0].secret),),
        first_round=leases[0].first_round,
    )
    secrets = {lease.switches[0].secret for lease in leases}
    assert len(secrets) == 2 and 0 not in secrets and leases[0].first_round != 0
    shown = client.get_job("train")
    assert (shown.state, shown.epoch) == ("ACTIVE", 1)
    assert not [secret for secret in secrets if str(secret) in f"{shown} {client.list_jobs()} {leases}"]
    at = MemberAddress(ONLY_SWITCH, "10.0.0.11", 4001, 2, "02:00:00:00:0a:01")
    assert shown.members[1].addresses == (at,)
    group = f"group {256 + made.id}"
    assert running.client.tables() == OWN_TABLES | {"job_member": 3, "admit": 2, group: 1}
    client.remove_job("train")
    assert running.client.tables() == OWN_TABLES, "the answer came before the switch was clean"
    assert client.heartbeat(tickets[0].nonce) == "job train was removed"
    assert client.list_jobs().free_slots == 16


@pytest.mark.fault("the controller is paused for longer than a member may be silent: members have their timeout anew")
def test_members_stay_over_a_pause_of_the_controller(
    running: Running, client: JobClient, caplog: pytest.LogCaptureFixture
) -> None:
    tickets, _ = create_and_form(running, client, "train", 2)

    def wake() -> None:
        running.clock.now += 60.0
        running.controller._awake_at -= 60.0
        running.controller.sweep()

    running.call(wake)
    assert "controller was paused" in caplog.messages
    assert [client.heartbeat(ticket.nonce) for ticket in tickets] == [None] * 2
    running.pass_time(11.0)
    assert client.heartbeat(tickets[0].nonce) is not None, "one that stays silent is dropped all the same"


@pytest.mark.fault("a rank's HELLO never arrives: LeaseTimeoutError names the rank and where it was expected")
def test_the_error_at_the_deadline_names_the_missing_ranks(running: Running, client: JobClient) -> None:
    client.create_job("train", 4)
    tickets = [client.join("train", rank, 4) for rank in (0, 1)]
    running.hello(tickets[0].job_id, tickets[0].nonce, 0)
    with pytest.raises(LeaseTimeoutError) as error:
        client.wait_lease(tickets[0].nonce, 0.0512345)
    assert str(error.value) == (
        "job train was not complete within 0.05 s: ranks 2, 3 did not join; "
        "no HELLO of rank 1 came through the switch, expected at 127.0.0.1:21072 "
        "(`p4reduce controller run --switch` sets it)"
    )


@pytest.mark.fault("very many waiting calls: other callers are served")
def test_many_waiting_calls_do_not_delay_others(tmp_path: Path) -> None:
    with serving(make_config(tmp_path, 8, 32, 64)) as running, JobClient(running.address) as client:
        client.create_job("train", 32)
        tickets = [client.join("train", rank, 32) for rank in range(32)]
        with ThreadPoolExecutor(32) as pool:
            waiting = [pool.submit(client.wait_lease, ticket.nonce, 20.0) for ticket in tickets]
            registry = running.controller.registry
            members = registry.get("train").members
            running.wait_for_waiters(members, 32)
            assert client.heartbeat(tickets[5].nonce) is None
            for ticket in tickets:
                running.hello(ticket.job_id, ticket.nonce, ticket.rank)
            leases = [one.result(LIMIT_S) for one in waiting]
        assert [lease.rank for lease in leases] == list(range(32))
        assert {lease.epoch for lease in leases} == {1}
        assert running.client.read_table("MainIngress.admission.admit")[31].params["full"] == 0xFFFFFFFF


def test_a_worker_that_joins_again_ends_its_former_wait(running: Running, client: JobClient) -> None:
    client.create_job("train", 2)
    old = client.join("train", 0, 2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.wait_lease, old.nonce, LIMIT_S)
        running.wait_for_waiters(running.controller.registry.get("train").members, 1)
        with pytest.raises(PlaceTakenError, match="rank 0 of job train is held by another worker"):
            client.join("train", 0, 2)
        client.join("train", 0, 2, former=old.nonce)
        with pytest.raises(MemberResetError, match="rank 0 joined again"):
            waiting.result(LIMIT_S)


def test_an_unknown_nonce_gets_an_error_that_says_to_join_again(client: JobClient) -> None:
    assert "restarted" in (client.heartbeat(12345) or "")
    with pytest.raises(MemberResetError, match="join again"):
        client.wait_lease(12345, 1.0)


def test_waiting_calls_get_an_error_when_the_controller_stops(config: Config) -> None:
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        running = stack.enter_context(serving(config))
        client = stack.enter_context(JobClient(running.address))
        client.create_job("train", 2)
        ticket = client.join("train", 0, 2)
        waiting = pool.submit(client.wait_lease, ticket.nonce, 1000.0)
        running.wait_for_waiters(running.controller.registry.get("train").members, 1)
        running.loop.call_soon_threadsafe(running.controller.stop)
        with pytest.raises(ControllerUnreachableError, match="the controller was stopped"):
            waiting.result(LIMIT_S)


def test_answers_may_be_larger_than_a_message(
    running: Running, client: JobClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC's clients take messages of 4 MiB."""
    client.create_job("train", 2)
    registry = running.controller.registry
    job = registry.get("train")
    job.hosts = {str(rank): f"rank{rank}." + "host." * 50 for rank in range(2)}
    monkeypatch.setattr(registry, "jobs", lambda: [job] * 50_000)
    monkeypatch.setattr(registry, "ended", lambda: [(1.0, job)] * 20_000)
    listed = client.list_jobs(ended=True)
    assert (len(listed.jobs), listed.slots, listed.free_slots) == (20_000, 16, 0)
    assert listed.jobs[-1].hosts == tuple(job.hosts.values())
    monkeypatch.setattr(job, "part_of", "another." * 20)
    assert len(client.stats().jobs) == 50_000


def test_stats_are_by_job_and_begin_with_the_job(running: Running, client: JobClient) -> None:
    counters = running.client.counters
    counters["MainIngress.contributions", 1] = (100, 5000)
    job = client.create_job("train", 1, slots=8)
    client.create_job("other", 1)
    assert client.stats("train").jobs[0].contributions.packets == 0, "old counts are not the job's"
    tickets, _ = form(running, client, "train", 1)
    counters["MainIngress.contributions", job.id] = (107, 5700)
    counters["MainIngress.results", job.id] = (3, 300)
    counters["MainIngress.pendings", job.id] = (2, 20)
    counters["MainIngress.drops", 8] = (4, 44)
    stats = client.stats("train")
    assert [one.name for one in stats.jobs] == ["train"]
    line = stats.jobs[0]
    assert (line.contributions.packets, line.contributions.bytes) == (7, 700)
    assert (line.results.packets, line.pendings.bytes, line.duplicates.packets) == (3, 20, 0)
    drops = {drop.reason: drop.count.packets for drop in stats.drops}
    assert drops["STALE"] == 4
    assert sum(drops.values()) == 4
    assert len(client.stats().jobs) == 2
    client.leave(tickets[0].nonce)
    form(running, client, "train", 1)
    assert client.stats("train").jobs[0].contributions.packets == 7, "a reset is not a new job"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda c: c.get_job("x"), UnknownJobError, "known jobs: train"),
        (lambda c: c.create_job("train", 2), JobExistsError, "already"),
        (lambda c: c.create_job("big", 9), InvalidRequestError, "takes 1 to 8 ranks"),
        (lambda c: c.create_job("big", 2, 15), SwitchFullError, "2 are free"),
        (lambda c: c.create_job("big", 2, 0), InvalidRequestError, "at least 1 slot"),
        (lambda c: c.create_job("big", -1), InvalidRequestError, "world size must be a whole number"),
        (lambda c: c.create_job("big", 2**32), InvalidRequestError, "a whole number from 0 to 4294967295"),
        (lambda c: c.join("train", 0, 3), InvalidRequestError, "world size 2, not 3"),
        (lambda c: c.join("train", 2, 2), InvalidRequestError, "ranks 0 to 1"),
        (lambda c: c.join("train", -1, 2), InvalidRequestError, "rank must be a whole number"),
        (lambda c: c.wait_lease(1, 1e9), InvalidRequestError, "timeout_s must be between"),
    ],
)
def test_refusals_are_exceptions_of_the_client(client: JobClient, call: object, error: type, message: str) -> None:
    client.create_job("train", 2, 14)
    with pytest.raises(error, match=message):
        call(client)  # type: ignore[operator]


def test_the_error_without_a_server_says_what_to_do() -> None:
    with JobClient("127.0.0.1:1") as client, pytest.raises(ControllerUnreachableError) as error:
        client.list_jobs()
    assert str(error.value) == "no controller at 127.0.0.1:1: start one with `p4reduce controller run`"


def test_the_error_without_a_route_says_so() -> None:
    nothing = grpc.aio.Metadata()
    lost = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "Network is unreachable")
    with (
        JobClient("127.0.0.1:1") as client,
        pytest.raises(ControllerUnreachableError, match="^no way to the controller"),
    ):
        client._call(Mock(side_effect=lost), None)


def test_a_closed_client_is_an_error(running: Running) -> None:
    client = JobClient(running.address)
    client.close()
    with pytest.raises(JobServiceError, match="closed"):
        client.list_jobs()

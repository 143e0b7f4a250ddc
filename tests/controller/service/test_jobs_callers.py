"""Callers: who may do what with a job, what is shown to whom and what is logged; and those that keep it waiting."""

from __future__ import annotations

import logging
from typing import Any
from unittest.mock import Mock

import grpc
import pytest

from p4reduce_contracts.jobs import jobs_pb2
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import ControllerFailedError, ForbiddenError, StoreError, UnknownJobError
from p4reduce_controller.config import Config
from p4reduce_controller.registry import tokens
from p4reduce_controller.service import process, servicer
from p4reduce_controller.service.store import Store
from p4reduce_runtime import logs
from p4reduce_runtime.waiting_calls import WaitingCalls
from rigs.certificates import Bench
from rigs.fake_switch_client import FakeSwitchClient, Running, create_and_form, form, serving, with_security
from rigs.idle_calls import idle_calls, idle_connections
from rigs.p4rt import code_of


def test_a_hash_matches_its_token_only() -> None:
    drawn = tokens.draw()
    assert drawn.owner != drawn.member != tokens.draw().member
    owner, member = tokens.lock(drawn.owner), tokens.lock(drawn.member)
    assert tokens.opens(drawn.owner, owner) and tokens.opens(drawn.owner, member, owner)
    for wrong in ("", drawn.member, owner, "ü"):
        assert not tokens.opens(wrong, owner)
    assert tokens.opens("", ""), "there is nothing to open"


@pytest.mark.fault("joining or removing a private job without its token: refused; the job continues")
def test_joining_and_removing_a_private_job_need_a_token(running: Running, client: JobClient) -> None:
    made = client.create_job("train", 2, private=True)
    with JobClient(running.address, token=made.member_token) as member:
        tickets, _ = form(running, member, "train", 2)
        with pytest.raises(ForbiddenError, match="to remove it takes its owner's token"):
            member.remove_job("train")
    for other, end in (
        (client, r"\)$"),
        (JobClient(running.address, token="guess"), ", and the token given is not that$"),
    ):
        with pytest.raises(ForbiddenError, match=f"job train is private: to join it takes its token .*{end}"):
            other.join("train", 0, 2)
        with pytest.raises(ForbiddenError):
            other.remove_job("train")
        other.close()
    with JobClient(running.address, token=made.owner_token) as owner:
        assert owner.heartbeat(tickets[0].nonce) is None, "the member was not disturbed"
        owner.join("train", 0, 2, former=tickets[0].nonce)
        owner.remove_job("train")


def test_tokens_stay_valid_over_a_restart_and_are_not_in_the_file(config: Config) -> None:
    switch = FakeSwitchClient()
    with serving(config, switch) as running, JobClient(running.address) as client:
        made = client.create_job("train", 1, private=True)
    content = b"".join(file.read_bytes() for file in config.controller.state_path.iterdir())
    assert b"train" in content
    assert made.owner_token.encode() not in content and made.member_token.encode() not in content
    with serving(config, switch) as running, JobClient(running.address, token=made.owner_token) as client:
        assert client.get_job("train").private
        client.remove_job("train")


@pytest.mark.fault("reading what is needed to forge frames: hidden")
@pytest.mark.parametrize("local", [True, False])
def test_epoch_and_addresses_are_not_shown_without_a_token(
    running: Running, client: JobClient, monkeypatch: pytest.MonkeyPatch, local: bool
) -> None:
    monkeypatch.setattr(servicer, "is_local_peer", lambda context: local)
    client.create_job("open", 1, 4)
    private = client.create_job("private", 1, 4, private=True)
    missing = "rank 0 did not join"
    assert [client.get_job(name).missing for name in ("open", "private")] == [missing, ""]
    form(running, client, "open", 1)
    with JobClient(running.address, token=private.member_token) as member:
        assert member.get_job("private").missing == missing
        form(running, member, "private", 1)
        assert member.get_job("private").epoch == 2
    jobs = [client.get_job("open"), client.get_job("private"), *client.list_jobs().jobs]
    for job, shown in zip(jobs, (local, False) * 2, strict=True):
        (member_info,) = job.members
        assert job.state == "ACTIVE"
        assert job.hidden is not shown
        if shown:
            (at,) = member_info.addresses
            assert (job.epoch, at.host, at.port) == (1, "10.0.0.10", 4000)
        else:
            assert (job.epoch, member_info.addresses) == (0, ())


def test_refusals_are_logged_once_a_reason_and_a_full_disk_is_an_error(
    client: JobClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    client.create_job("mine", 1, 1, private=True)
    for job, error in (("nothing", UnknownJobError), ("nothing", UnknownJobError), ("mine", ForbiddenError)):
        with pytest.raises(error):
            client.join(job, 0, 1)
    monkeypatch.setattr(Store, "save", Mock(side_effect=StoreError("the disk is full")))
    with pytest.raises(ControllerFailedError):
        client.create_job("another", 1, 1)
    refused = [record for record in caplog.records if record.message == "call refused"]
    told = [(record.levelname, record.__dict__["p4reduce_fields"]["reason"]) for record in refused]
    assert told == [("INFO", "UnknownJob"), ("INFO", "Forbidden"), ("ERROR", "StoreError")]


def test_a_rank_without_heartbeats_is_a_warning_and_a_leaving_one_is_not(
    running: Running, client: JobClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tickets, _ = create_and_form(running, client, "train", 1)
    client.leave(tickets[0].nonce)
    form(running, client, "train", 1)
    running.pass_time(100.0)
    assert [one.levelname for one in caplog.records if one.message == "job reset"] == ["INFO", "WARNING"]


@pytest.mark.parametrize("formatter", [logs.PlainLine(), logs.JsonLine()])
def test_no_secret_is_in_any_line(
    running: Running, client: JobClient, caplog: pytest.LogCaptureFixture, formatter: logging.Formatter
) -> None:
    caplog.set_level(logging.DEBUG)
    made = client.create_job("mine", 2, 4, private=True)
    with JobClient(running.address, token=made.member_token) as member:
        tickets, leases = form(running, member, "mine", 2)
        running.client.restart()
        member.leave(tickets[0].nonce)
    with JobClient(running.address, token=made.owner_token) as owner:
        owner.remove_job("mine")
    secrets = {made.owner_token, made.member_token}
    for number in [ticket.nonce for ticket in tickets] + [lease.switches[0].secret for lease in leases]:
        secrets |= {str(number), f"{number:x}", str(number.to_bytes(8, "big"))[2:-1]}
    lines = [formatter.format(record) for record in list(caplog.records)]
    assert any("job granted" in line for line in lines)
    assert not [line for line in lines if any(secret in line for secret in secrets)]


JOBS = jobs_pb2.DESCRIPTOR.services_by_name["Jobs"]
METHODS = [f"/{JOBS.full_name}/{method.name}" for method in JOBS.methods]


@pytest.mark.fault("48 calls of each kind to the job service that send headers alone, and 200 connections: jobs form")
def test_calls_without_a_request_keep_nobody_away(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 16
    monkeypatch.setattr(process, "WaitingCalls", lambda _: WaitingCalls(most))
    with (
        serving(config) as running,
        idle_connections(running.address),
        idle_calls(running.address, METHODS) as calls,
        JobClient(running.address) as client,
    ):
        codes = sorted(code_of(next, call) for call in calls[:-most])
        assert codes == ["FAILED_PRECONDITION"] * (len(calls) - most), "the others wait still"
        create_and_form(running, client, "train", 2)


def test_a_caller_has_a_deadline_for_its_request(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "p4reduce_controller.service.process.WaitingCalls", lambda most: WaitingCalls(most, limit_s=0.2)
    )
    with serving(config) as running, idle_calls(running.address, METHODS, 1) as calls:
        assert {code_of(next, call) for call in calls} == {"FAILED_PRECONDITION"}
        reasons = running.controller._servicer.refusals
        assert sum(reasons.values()) == len(METHODS)


def test_the_role_is_checked_at_the_headers(config: Config, bench: Bench) -> None:
    options: list[tuple[str, Any]] = [("grpc.ssl_target_name_override", "controller.p4reduce")]
    credentials: grpc.ChannelCredentials = bench.of("switch").client_credentials()
    with (
        serving(with_security(config, bench.of("controller"))) as running,
        idle_calls(running.address, METHODS, 1, options, credentials=credentials) as calls,
    ):
        assert {code_of(next, call) for call in calls} == {"PERMISSION_DENIED"}

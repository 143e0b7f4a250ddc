"""Callers that keep the job service waiting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest
from msgspec.structs import replace

from p4reduce_contracts.jobs import jobs_pb2
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_controller.config import Config, SecurityConfig
from p4reduce_controller.service import process
from p4reduce_runtime.waiting_calls import WaitingCalls
from rigs.certificates import Bench
from rigs.fake_switch_client import form, serving
from rigs.idle_calls import idle_calls, idle_connections
from rigs.p4rt import code_of

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
        client.create_job("train", 2)
        form(running, client, "train", 2)


def test_a_caller_has_a_deadline_for_its_request(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "p4reduce_controller.service.process.WaitingCalls", lambda most: WaitingCalls(most, limit_s=0.2)
    )
    with serving(config) as running, idle_calls(running.address, METHODS, 1) as calls:
        assert {code_of(next, call) for call in calls} == {"FAILED_PRECONDITION"}
        reasons = running.controller._servicer.refusals
        assert sum(reasons.values()) == len(METHODS)


def test_the_role_is_checked_at_the_headers(config: Config, tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    files, caller = bench.of("controller"), bench.of("switch")
    settings = SecurityConfig(str(files.ca), str(files.certificate), str(files.key))
    options: list[tuple[str, Any]] = [("grpc.ssl_target_name_override", "controller.p4reduce")]
    credentials: grpc.ChannelCredentials = caller.client_credentials()
    with (
        serving(replace(config, security=settings)) as running,
        idle_calls(running.address, METHODS, 1, options, credentials=credentials) as calls,
    ):
        assert {code_of(next, call) for call in calls} == {"PERMISSION_DENIED"}

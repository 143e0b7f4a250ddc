"""Callers that keep the job service waiting."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from msgspec.structs import replace

import p4reduce
from p4reduce_contracts.jobs import jobs_pb2
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_controller.config import Config, SecurityConfig
from p4reduce_runtime.waiting_calls import WaitingCalls
from p4reduce_switch.p4runtime.request_guard import P4RUNTIME
from rigs.certificates import Bench
from rigs.fake_switch_client import form, serving
from rigs.idle_calls import idle_calls, idle_connections
from rigs.limits import LIMIT_S
from rigs.p4rt import code_of
from rigs.system import System

JOBS = jobs_pb2.DESCRIPTOR.services_by_name["Jobs"]
P4RUNTIME_METHODS = [f"/p4.v1.P4Runtime/{method.name}" for method in P4RUNTIME.methods]
METHODS = [f"/{JOBS.full_name}/{method.name}" for method in JOBS.methods]


@pytest.mark.processes
@pytest.mark.fault("48 calls of each kind to the job service that send headers alone, and 200 connections: jobs form")
def test_calls_without_a_request_keep_nobody_away(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 16
    monkeypatch.setattr("p4reduce_controller.service.WaitingCalls", lambda _: WaitingCalls(most))
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
    monkeypatch.setattr("p4reduce_controller.service.WaitingCalls", lambda most: WaitingCalls(most, limit_s=0.2))
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


@pytest.mark.processes
@pytest.mark.fault("48 calls of each kind without a request, 200 connections: jobs go on and form; a controller starts")
def test_jobs_go_on_and_form_and_the_controller_comes_back(system: System) -> None:
    address, switch = system.controller.address("jobs on"), system.switch.address("P4Runtime")
    with JobClient(address, LIMIT_S) as client, contextlib.ExitStack() as stack:
        for name in ("before", "meanwhile", "after"):
            client.create_job(name, 1, slots=4)

        def joined(name: str) -> p4reduce.Communicator:
            return stack.enter_context(p4reduce.join(name, rank=0, world_size=1, controller=address, timeout_s=LIMIT_S))

        running = [joined("before")]
        for server, methods in ((switch, P4RUNTIME_METHODS), (address, METHODS)):
            stack.enter_context(idle_calls(server, methods))
            stack.enter_context(idle_connections(server))
        running.append(joined("meanwhile"))
        system.controller.end(signal.SIGKILL)
        system.start_controller(heartbeat_timeout_s=60)
        running.append(joined("after"))
        for job in running:
            assert job.all_reduce(np.array([5], np.int32)).tolist() == [5]
            assert job.lease.epoch == client.get_job(job.lease.name).epoch, "it was not reset"

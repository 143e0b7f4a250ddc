"""Quotas: no client takes all jobs, slots, joins or epochs."""

from __future__ import annotations

import contextlib
import select
import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from p4reduce_contracts.artifacts import SwitchGeometry
from p4reduce_contracts.jobs.client import InvalidRequestError, JobClient, QuotaExceededError
from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_controller.config import Config, QuotaConfig
from p4reduce_controller.jobs.hello import Address, Hello
from p4reduce_controller.jobs.quotas import Quotas, Rate
from p4reduce_controller.jobs.registry import Registry
from rigs.fake_switch_client import LIMIT_S, serving
from rigs.memory_job_store import MemoryJobStore


def make_registry(**quotas: int) -> Registry:
    return Registry(SwitchGeometry(8, 32, 64), MemoryJobStore(), 1000.0, quotas=Quotas(QuotaConfig(**quotas)))


@settings(max_examples=100, deadline=None, derandomize=True)
@given(a_minute=st.integers(1, 30), pauses=st.lists(st.floats(0, 30), max_size=100))
def test_a_rate_holds_over_any_period(a_minute: int, pauses: list[float]) -> None:
    rate, now, spent = Rate(a_minute), 0.0, []
    for pause in pauses:
        now += pause
        if not rate.wait_s("a", now):
            rate.spend("a", now)
            spent.append(now)
    for first in spent:
        in_a_minute = [time for time in spent if first <= time < first + 60.0]
        assert len(in_a_minute) <= 2 * a_minute, "what was left, and what came back"
    wait_s = rate.wait_s("a", now)
    assert rate.wait_s("a", now + wait_s + 1e-6) == 0.0
    assert rate.wait_s("b", now) == 0.0, "owners do not share"


def test_the_owner_with_the_oldest_call_is_dropped_from_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("p4reduce_controller.jobs.quotas._REMEMBERED", 10)
    rate = Rate(1)
    for number in range(1000):
        rate.spend(str(number), 0.0)
    assert len(rate._left) == 10
    assert rate.wait_s("999", 0.0) == 60.0


@pytest.mark.fault("very many jobs or slots of one owner: QuotaExceededError; others get theirs")
def test_the_jobs_and_slots_of_an_owner_are_limited() -> None:
    registry = make_registry(jobs=2, slots=10)
    registry.create("a", 1, 4, owner="alice")
    with pytest.raises(QuotaExceededError, match="alice has 4 slots and asks for 7; one owner may have 10"):
        registry.create("b", 1, 7, owner="alice")
    registry.create("b", 1, 6, owner="alice")
    with pytest.raises(QuotaExceededError, match=r"alice has 2 jobs, the most that one owner may have \(quotas.jobs\)"):
        registry.create("c", 1, 1, owner="alice")
    assert registry.create("c", 1, 10, owner="bob").slots.base == 10, "refused jobs hold no slots"
    registry.remove("a")
    registry.create("d", 1, 4, owner="alice")


def test_the_joins_of_an_owner_are_limited_by_a_rate() -> None:
    registry = make_registry(joins_a_minute=3)
    registry.create("train", 2)
    nonce = 0
    for _ in range(3):
        nonce = registry.join("train", 0, 2, 0.0, former=nonce, owner="mallory").nonce
    with pytest.raises(QuotaExceededError, match=r"mallory joined 3 times in a minute.*; again in 20\.0 s"):
        registry.join("train", 0, 2, 0.0, former=nonce, owner="mallory")
    assert registry.heartbeat(nonce, 0.0) == "", "what was refused had no effect"
    registry.join("train", 1, 2, 0.0, owner="alice")
    registry.join("train", 0, 2, 20.0, former=nonce, owner="mallory")


@pytest.mark.fault("burning epochs: given at a rate; a job that waits for one gets it")
def test_epochs_are_granted_at_a_rate_and_a_waiting_job_gets_the_next() -> None:
    registry = make_registry(leases_a_minute=2)
    job = registry.create("train", 1, owner="alice")
    nonce = 0
    for number in range(3):
        member = registry.join("train", 0, 1, 0.0, former=nonce)
        nonce = member.nonce
        registry.hello(Hello(job.id, nonce, Address(1, 2, 3, number)), 0.0)
        assert (bool(job.grants)) is (number < 2)
    assert job.missing() == "alice had as many leases in a minute as one owner may; the next in 30.0 s"
    registry.sweep(29.0)
    assert not job.grants
    before = registry.version
    registry.sweep(30.0)
    assert bool(job.grants) and job.grants[ONLY_SWITCH].epoch == 3, "no epoch was spent while it waited"
    assert registry.version > before


def test_concurrent_waits_of_a_member_are_limited() -> None:
    registry = make_registry()
    registry.create("train", 1)
    member = registry.join("train", 0, 1, 0.0)
    for _ in range(4):
        registry.wait_started(member.nonce)
    with pytest.raises(InvalidRequestError, match="rank 0 of job train waits 4 times already"):
        registry.wait_started(member.nonce)


@contextlib.contextmanager
def from_source(source: str, address: str) -> Iterator[str]:
    """A TCP relay to `address`, whose connections have the address `source`; where it listens."""
    host, _, port = address.rpartition(":")

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((host, int(port)), LIMIT_S, (source, 0)) as onward:
                peers = {self.request: onward, onward: self.request}
                while readable := select.select(list(peers), [], [], LIMIT_S)[0]:
                    for each in readable:
                        if not (data := each.recv(1 << 16)):
                            return
                        peers[each].sendall(data)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Relay) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(LIMIT_S)


@pytest.mark.fault("jobs and joins from many loopback addresses: they count for one owner")
@pytest.mark.processes
def test_all_loopback_addresses_are_one_owner(config: Config) -> None:
    with (
        serving(replace(config, quotas=QuotaConfig(jobs=2, joins_a_minute=1))) as running,
        from_source("127.0.0.1", running.address) as one,
        from_source("127.44.5.6", running.address) as other,
        JobClient(one) as first,
        JobClient(other) as second,
    ):
        first.create_job("a", 2, 4)
        second.create_job("b", 2, 4)
        assert {job.owner for job in running.controller.registry.jobs()} == {"127.0.0.1"}
        for client in (first, second):
            with pytest.raises(QuotaExceededError, match=r"127\.0\.0\.1 has 2 jobs"):
                client.create_job("c", 1, 4)
        first.join("a", 0, 2)
        with pytest.raises(QuotaExceededError, match=r"127\.0\.0\.1 joined 1 times in a minute"):
            second.join("b", 0, 2)


def test_quotas_of_the_configuration_hold_for_callers(config: Config) -> None:
    with serving(replace(config, quotas=QuotaConfig(jobs=1))) as running, JobClient(running.address) as client:
        client.create_job("a", 1, 4)
        with pytest.raises(QuotaExceededError, match=r"127\.0\.0\.1 has 1 jobs"):
            client.create_job("b", 1, 4)

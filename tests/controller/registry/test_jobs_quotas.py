"""Quotas: no client takes all jobs or slots."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from p4reduce_contracts.artifacts import SwitchGeometry
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import InvalidRequestError, QuotaExceededError
from p4reduce_controller.config import Config, QuotaConfig
from p4reduce_controller.registry.registry import Registry
from rigs.fake_switch_client import serving
from rigs.memory_job_store import MemoryJobStore


def make_registry(**quotas: int) -> Registry:
    return Registry(SwitchGeometry(8, 32, 64), MemoryJobStore(), 1000.0, quotas=QuotaConfig(**quotas))


def test_where_slots_are_limited_a_job_has_no_more_than_128_by_default() -> None:
    registry = Registry(SwitchGeometry(8, 32, 1024), MemoryJobStore(), 10.0, quotas=QuotaConfig(slots=300))
    assert [registry.create(name, 1).slots.count for name in "ab"] == [128, 128]


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


def test_concurrent_waits_of_a_member_are_limited() -> None:
    registry = make_registry()
    registry.create("train", 1)
    member = registry.join("train", 0, 1, 0.0)
    for _ in range(4):
        registry.wait_started(member.nonce)
    with pytest.raises(InvalidRequestError, match="rank 0 of job train waits 4 times already"):
        registry.wait_started(member.nonce)


def test_quotas_of_the_configuration_hold_for_callers(config: Config) -> None:
    with serving(replace(config, quotas=QuotaConfig(jobs=1))) as running, JobClient(running.address) as client:
        client.create_job("a", 1, 4)
        with pytest.raises(QuotaExceededError, match=r"127\.0\.0\.1 has 1 jobs"):
            client.create_job("b", 1, 4)

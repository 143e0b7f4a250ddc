"""A rank's metrics over HTTP."""

from __future__ import annotations

import urllib.request
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import p4reduce
from p4reduce.errors import JoinError
from p4reduce.rank_metrics import RankMetrics, address_of
from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_lab.addresses import free_address
from rigs.system import running_system


def page(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_the_metrics_of_a_rank_are_served_until_it_closes() -> None:
    server = RankMetrics("127.0.0.1:0", insecure=False)
    assert "p4reduce_worker" not in page(server.address), "it has not joined yet"
    with LocalGroup(2) as group:
        server.attach(group.comms[1])
        group.run(lambda comm: comm.all_reduce(np.ones(9, np.float32)))
        assert 'p4reduce_worker_collectives_total{job_name="test",rank="1"} 1.0' in page(server.address)
    with pytest.raises(OSError):
        page(server.address)


def test_a_private_job_has_a_number_instead_of_its_name() -> None:
    server = RankMetrics("127.0.0.1:0", insecure=False)
    with LocalGroup(1) as group:
        comm = group.comms[0]
        comm._connection.lease = replace(comm.lease, name="confidential", private=True)
        server.attach(comm)
        text = page(server.address)
        assert f'job_name="private:{comm.lease.job_id}",rank="0"' in text
        assert "confidential" not in text


def test_join_serves_metrics_with_a_real_switch(tmp_path: Path) -> None:
    address = free_address()
    with running_system(tmp_path) as system:
        controller = system.controller.address("jobs on")
        with JobClient(controller) as client:
            client.create_job("alone", 1)
        with p4reduce.join("alone", rank=0, world_size=1, controller=controller, metrics=address) as comm:
            comm.all_reduce(np.ones(9, np.float32))
            assert 'p4reduce_worker_rounds_total{job_name="alone",rank="0"}' in page(address)


def test_ranks_of_one_host_have_ports_of_their_own() -> None:
    assert address_of(None, {}) is None
    assert address_of(None, {"P4REDUCE_METRICS": "127.0.0.1:9610"}) == "127.0.0.1:9610"
    assert address_of(None, {"P4REDUCE_METRICS": "127.0.0.1:9610", "LOCAL_RANK": "3"}) == "127.0.0.1:9613"
    assert address_of("127.0.0.1:9700", {"P4REDUCE_METRICS": "127.0.0.1:9610", "LOCAL_RANK": "3"}) == "127.0.0.1:9700"


@pytest.mark.parametrize(
    "environment",
    [
        {"P4REDUCE_METRICS": "9610"},
        {"P4REDUCE_METRICS": "127.0.0.1:65535", "LOCAL_RANK": "1"},
        {"P4REDUCE_METRICS": "127.0.0.1:9610", "LOCAL_RANK": "x"},
    ],
)
def test_an_invalid_metrics_address_is_an_error(environment: dict[str, str]) -> None:
    with pytest.raises(JoinError):
        address_of(None, environment)


def test_metrics_of_a_rank_beyond_loopback_need_insecure() -> None:
    with pytest.raises(JoinError, match=r"every host that reaches 0\.0\.0\.0:0 could read the metrics"):
        p4reduce.join("train", rank=0, world_size=1, metrics="0.0.0.0:0")
    RankMetrics("0.0.0.0:0", insecure=True).close()

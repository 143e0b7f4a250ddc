"""What a rank counts and measures; its metrics over HTTP, and the controller's with real switches."""

from __future__ import annotations

import contextlib
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

import p4reduce
from p4reduce import Communicator
from p4reduce.errors import JoinError, UnderflowError
from p4reduce.membership.join import log_summary
from p4reduce.membership.rank_metrics import RankMetrics, address_of
from p4reduce.pytorch.refused_sums import all_may_go_on
from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_runtime import metrics
from rigs.limits import LIMIT_S
from rigs.local_system import local_system
from rigs.ports import own_address
from rigs.system import RACKS

Scraped = dict[tuple[str, ...], float]


def page(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=LIMIT_S) as answer:
        return str(answer.read().decode())


def scraped(address: str) -> Scraped:
    """Every value by the metric's name and its labels' values."""
    families = text_string_to_metric_families(page(address))
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def test_the_metrics_of_a_rank_are_served_until_it_closes() -> None:
    server = RankMetrics("127.0.0.1:0", insecure=False)
    assert "p4reduce_worker" not in page(server.address), "it has not joined yet"
    with LocalGroup(2) as group:
        server.attach(group.comms[1])
        group.run(lambda comm: comm.all_reduce(np.ones(9, np.float32)))
        assert 'p4reduce_worker_collectives_total{job_name="test",rank="1"} 1.0' in page(server.address)
    with pytest.raises(OSError):
        page(server.address)


def test_a_private_job_has_a_number_instead_of_its_name(comm: Communicator) -> None:
    server = RankMetrics("127.0.0.1:0", insecure=False)
    comm.path.lease = replace(comm.lease, name="confidential", private=True)
    server.attach(comm)
    text = page(server.address)
    assert f'job_name="private:{comm.lease.job_id}",rank="0"' in text
    assert "confidential" not in text


@pytest.mark.parametrize("racks", [1, RACKS])
def test_ranks_and_controller_serve_metrics_with_real_switches(tmp_path: Path, racks: int) -> None:
    addresses = [own_address(), own_address()]
    joined = threading.Barrier(2, timeout=LIMIT_S)

    def work(rank: int) -> tuple[Scraped, Scraped]:
        place = {"rank": rank, "world_size": 2, "switch": local.switch_of(rank, 2)}
        with p4reduce.join("pair", controller=local.address, metrics=addresses[rank], **place) as comm:
            comm.all_reduce(np.ones(90, np.float32))
            found = scraped(addresses[rank])
            comm.barrier()
            joined.wait()
            switches, counted = (local.root, *local.leaves), scraped(local.controller.metrics_address)
            while not all(counted["p4reduce_controller_switch_up", switch] for switch in switches):
                time.sleep(0.1)  # a busy machine pauses the controller, which then connects anew
                counted = scraped(local.controller.metrics_address)
            joined.wait()  # before a rank closes: its last round may end by a time limit
            return found, counted

    with local_system(tmp_path, racks) as local, JobClient(local.address) as client, ThreadPoolExecutor(2) as pool:
        client.create_job("pair", 2)
        (first, counted), (second, _) = pool.map(work, range(2))
    rounds = first["p4reduce_worker_rounds_total", "pair", "0"]
    assert rounds == second["p4reduce_worker_rounds_total", "pair", "1"] > 1
    below = dict.fromkeys(local.leaves, (1, True)) or {local.root: (2, False)}
    for switch, (children, passes_down) in {local.root: (2, False), **below}.items():
        of_switch = {name: value for (name, *labels), value in counted.items() if labels == ["pair", switch]}
        rounds_there = of_switch["p4reduce_job_rounds_total"]
        assert rounds_there > rounds, "the barrier's too"
        assert of_switch["p4reduce_job_contribution_frames_total"] == children * rounds_there
        assert (of_switch["p4reduce_job_parent_frames_total"] >= rounds_there) == passes_down
        assert of_switch["p4reduce_job_contribution_bytes_total"] > 100 * rounds_there


@pytest.mark.parametrize(
    ("given", "variables", "address"),
    [
        (None, {}, None),
        (None, {"P4REDUCE_METRICS": "127.0.0.1:9610"}, "127.0.0.1:9610"),
        (None, {"P4REDUCE_METRICS": "127.0.0.1:9610", "LOCAL_RANK": "3"}, "127.0.0.1:9613"),
        ("127.0.0.1:9700", {"P4REDUCE_METRICS": "127.0.0.1:9610", "LOCAL_RANK": "3"}, "127.0.0.1:9700"),
        (None, {"P4REDUCE_METRICS": "9610"}, JoinError),
        (None, {"P4REDUCE_METRICS": "127.0.0.1:65535", "LOCAL_RANK": "1"}, JoinError),
        (None, {"P4REDUCE_METRICS": "127.0.0.1:9610", "LOCAL_RANK": "x"}, JoinError),
    ],
)
def test_ranks_of_one_host_have_ports_of_their_own(given: str | None, variables: dict[str, str], address: Any) -> None:
    with pytest.raises(JoinError) if address is JoinError else contextlib.nullcontext():
        assert address_of(given, variables) == address


def test_metrics_of_a_rank_beyond_loopback_need_insecure() -> None:
    with pytest.raises(JoinError, match=r"every host that reaches 0\.0\.0\.0:0 could read the metrics"):
        p4reduce.join("train", rank=0, world_size=1, metrics="0.0.0.0:0")
    RankMetrics("0.0.0.0:0", insecure=True).close()


def test_a_rank_shows_every_metric_of_a_worker() -> None:
    with LocalGroup(2) as group:
        before = group.comms[0].metrics()
        group.run(lambda comm: comm.all_reduce(np.ones(1000, np.float32)))
        # it has had none if every frame had to be sent again
        group.comms[0].path.round_trip.table[0] = 0.05, 0.01, 0.05, 0.001, 0.0
        after = group.comms[0].metrics()
    declared = {metric.name for metric in metrics.declared() if metric.name.startswith("p4reduce_worker_")}
    assert set(after) == declared
    assert before["p4reduce_worker_round_trip_seconds"] == 0
    assert 0 < after["p4reduce_worker_round_trip_seconds"] <= after["p4reduce_worker_timeout_seconds"]
    assert after["p4reduce_worker_rounds_total"] > 0


def test_rank_0_says_at_the_end_what_was_sent_and_saved(caplog: pytest.LogCaptureFixture) -> None:
    """Dense are the tensors that a rank sends, in their own types: those of sums whole, of a broadcast the root's."""
    caplog.set_level("INFO", "p4reduce")
    numbers, told = np.zeros(30_000, np.float32), np.ones(500, np.float32)
    numbers[:100] = 1
    membership = Mock(failure=lambda: None)
    with LocalGroup(2) as group:
        first, second = group.comms
        for comm in (first, second):
            comm.at_close.append(log_summary)
        first.failure.membership, first.count_over_gloo = membership, lambda: 7
        for _ in range(2):
            group.run(lambda comm: all_may_go_on(comm, UnderflowError("found by its exponents")))
        group.run(lambda comm: comm.all_reduce(numbers))
        group.run(lambda comm: comm.all_reduce(numbers.astype(np.float16)))
        group.run(lambda comm: comm.broadcast(told, root=0))
        assert (first.stats.dense_bytes, second.stats.dense_bytes) == (182_000, 180_000)
        group.run(lambda comm: comm.close())
    (line,) = (record for record in caplog.records if record.getMessage() == "job summary")
    (said,) = (record for record in caplog.records if record.getMessage() != "job summary")
    assert said.getMessage() == "sum underflows", "once, and no line of each collective that was refused for it"
    fields = line.__dict__["p4reduce_fields"]
    counts = [fields[name] for name in ("over_p4reduce", "over_gloo", "underflows")]
    assert counts == [6, 7, 2], "with the last one, of close()"
    assert (fields["sent_bytes"], fields["saved_bytes"]) == (first.stats.bytes_up, 182_000 - first.stats.bytes_up)
    assert 0 < first.stats.bytes_up < 50_000 and fields["collective_s"] > 0
    membership.leave.assert_called_once_with(finished=True)

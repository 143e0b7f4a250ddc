"""Answers of the job service that leave fields out, as proto3 lets a server do where they have their defaults."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from p4reduce_contracts.jobs import jobs_pb2, jobs_pb2_grpc
from p4reduce_contracts.jobs.answers import Count, DropStats, JobStats, Stats
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import JobServiceError
from p4reduce_contracts.jobs.lease import Level
from rigs.limits import LIMIT_S

TREE = [
    jobs_pb2.Level(switch="leaf1", children=[jobs_pb2.Child(ranks=[0]), jobs_pb2.Child(ranks=[1])], parent="root"),
    jobs_pb2.Level(switch="root", children=[jobs_pb2.Child(ranks=[0, 1]), jobs_pb2.Child(ranks=[2])]),
]
OF_AN_EARLIER_VERSION = 2


class Service(jobs_pb2_grpc.JobsServicer):
    def Stats(self, request: Any, context: Any) -> Any:
        job = jobs_pb2.JobStats(name="train", contributions=jobs_pb2.Count(packets=3))
        yield jobs_pb2.StatsReply(jobs=[job], drops=[jobs_pb2.DropStats(reason="STALE")])

    def WaitLease(self, request: Any, context: Any) -> Any:
        sizes = {"world_size": 3, "slot_count": 16, "columns": 8, "block_words": 32}
        switches = [] if request.nonce == OF_AN_EARLIER_VERSION else [jobs_pb2.LeasedSwitch(levels=TREE)]
        return jobs_pb2.Lease(name="train", rank=1, **sizes, switches=switches, first_round=0xFFFFFFFF)

    def ListJobs(self, request: Any, context: Any) -> Any:
        yield jobs_pb2.ListJobsReply(jobs=[jobs_pb2.Job(name="train", tree=TREE)])

    def ListSwitches(self, request: Any, context: Any) -> Any:
        return jobs_pb2.ListSwitchesReply(switches=[jobs_pb2.Switch(name="leaf1", parent="root", uplink_port=9)])


@pytest.fixture
def client() -> Iterator[JobClient]:
    server = grpc.server(ThreadPoolExecutor(1))
    jobs_pb2_grpc.add_JobsServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with JobClient(f"127.0.0.1:{port}") as client:
            yield client
    finally:
        server.stop(None).wait(LIMIT_S)


def test_counts_that_are_left_out_are_0(client: JobClient) -> None:
    job = JobStats("train", 0, Count(3, 0), Count(), Count(), Count())
    assert client.stats() == Stats((job,), (DropStats("STALE", Count()),))


def test_counts_are_never_negative() -> None:
    assert Count(3, 500) - Count(10, 200) == Count(0, 300)


def test_trees_arrive_as_levels(client: JobClient) -> None:
    leaf, root = Level("leaf1", ((0,), (1,)), "root"), Level("root", ((0, 1), (2,)))
    assert client.wait_lease(1, 1.0).switches[0].levels == (leaf, root)
    assert client.list_jobs().jobs[0].tree == (leaf, root)


def test_a_lease_of_an_earlier_version_is_refused(client: JobClient) -> None:
    assert client.wait_lease(1, 1.0).first_round == 0xFFFFFFFF
    with pytest.raises(JobServiceError, match="earlier version than this worker: its lease names no switches"):
        client.wait_lease(OF_AN_EARLIER_VERSION, 1.0)


def test_a_link_that_is_not_known_has_no_port_of_the_parent(client: JobClient) -> None:
    (switch,) = client.list_switches()
    assert (switch.name, switch.parent, switch.uplink_port, switch.parent_port) == ("leaf1", "root", 9, 0)

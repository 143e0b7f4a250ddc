"""Answers of the job service that leave fields out, as proto3 lets a server do where they have their defaults."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import grpc
import pytest

from p4reduce_contracts.errors import GeometryMismatchError
from p4reduce_contracts.jobs import jobs_pb2, jobs_pb2_grpc
from p4reduce_contracts.jobs.answers import Count, DropStats, JobStats, Stats
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import ControllerUnreachableError, JobServiceError
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch, Level
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


@contextlib.contextmanager
def serving(port: int = 0) -> Iterator[int]:
    server = grpc.server(ThreadPoolExecutor(1))
    jobs_pb2_grpc.add_JobsServicer_to_server(Service(), server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait(LIMIT_S)


@pytest.fixture
def client() -> Iterator[JobClient]:
    with serving() as port, JobClient(f"127.0.0.1:{port}") as client:
        yield client


def test_a_new_client_does_not_wait_as_long_as_one_that_was_refused() -> None:
    """gRPC shares connections, and the pauses between attempts, among channels to the same address."""
    with serving() as port:
        pass
    with JobClient(f"127.0.0.1:{port}") as refused:
        for _ in range(5):  # pauses grow to 0.5 s
            with pytest.raises(ControllerUnreachableError):
                refused.list_jobs()
            time.sleep(0.2)
        with serving(port), JobClient(f"127.0.0.1:{port}") as fresh:
            assert fresh.list_jobs().jobs


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


FLAT = Lease(1, "train", 7, 1, 3, 16, 8, 32)
LEAF = Level("leaf1", ((0,), (1,)), "root")
ROOT = Level("root", ((0, 1), (2,)))


def behind(*levels: Level) -> dict[str, object]:
    return {"switches": (LeasedSwitch(levels=levels),)}


OVER_TREE = replace(FLAT, **behind(LEAF, ROOT))  # type: ignore[arg-type]


def test_a_lease_without_levels_has_one_switch_whose_children_are_the_ranks() -> None:
    assert FLAT.switches[0].levels == (Level("switch", ((0,), (1,), (2,))),)
    assert (FLAT.depth, FLAT.full) == (0, 0b111)


def test_full_is_that_of_the_root() -> None:
    assert (OVER_TREE.depth, OVER_TREE.full, OVER_TREE.switches[0].levels[0].ranks) == (1, 0b11, (0, 1))
    assert replace(OVER_TREE, rank=2, switches=(LeasedSwitch(levels=(ROOT,)),)).depth == 0


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"rank": 2}, "rank 2 has it not behind switch leaf1"),
        (behind(LEAF), "other ranks than 0 to 2"),
        (behind(LEAF, Level("root", ((0,), (1, 2)))), "not behind switch root"),
        ({"world_size": 33} | behind(), "33 children of job 'train', and a switch takes at most 32"),
        ({"world_size": 1025} | behind(), "a job has 1 to 1024 ranks"),
    ],
)
def test_levels_that_do_not_lead_to_a_root_with_all_ranks_are_refused(changes: dict[str, object], match: str) -> None:
    with pytest.raises(GeometryMismatchError, match=match):
        replace(OVER_TREE, **changes)  # type: ignore[arg-type]

"""Answers of the job service that leave fields out, as proto3 lets a server do where they have their defaults."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from p4reduce_contracts.jobs import jobs_pb2, jobs_pb2_grpc
from p4reduce_contracts.jobs.answers import Count, DropStats, JobStats, Stats
from p4reduce_contracts.jobs.client import JobClient


class Service(jobs_pb2_grpc.JobsServicer):
    def Stats(self, request: Any, context: Any) -> Any:
        job = jobs_pb2.JobStats(name="train", contributions=jobs_pb2.Count(packets=3))
        return jobs_pb2.StatsReply(jobs=[job], drops=[jobs_pb2.DropStats(reason="STALE")])


def test_counts_that_are_left_out_are_0() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    jobs_pb2_grpc.add_JobsServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with JobClient(f"127.0.0.1:{port}") as client:
            job = JobStats("train", 0, Count(3, 0), Count(), Count(), Count())
            assert client.stats() == Stats((job,), (DropStats("STALE", Count()),))
    finally:
        server.stop(None).wait(10)

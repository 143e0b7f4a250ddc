"""Ranks of hosts that join again when a sum over their host was interrupted."""

from __future__ import annotations

import threading
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from p4reduce.codecs import Floats, Int32
from p4reduce.communicator import Communicator
from p4reduce.errors import AGAIN, HostLostError, JobResetError
from p4reduce.membership import rejoin
from p4reduce.membership.resync import resynced
from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts.wire.geometry import SMALL
from rigs.cut_runs import same
from rigs.host_group import CutHostGroup
from rigs.limits import LIMIT_S

pytestmark = pytest.mark.usefixtures("small_and_patient")
ONES = np.ones(70, np.int32)


def sums(comm: Communicator) -> list[Any]:
    """Sums of one collective in several formats."""
    mine = np.random.default_rng(comm.rank).normal(size=70).astype(np.float32)
    segments = [Floats(mine, 8), Floats(mine, mean=True), Floats(mine, part=(3, 5 + comm.rank)), Int32(ONES)]
    return comm.all_reduce_segments(segments)


def test_ranks_that_lack_the_sums_get_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reset comes when rank 0 has the sums, and the others wait for those of their host."""
    over = threading.Event()

    def interrupted(*arguments: object) -> None:
        assert over.wait(LIMIT_S)
        raise JobResetError("the switch restarted")

    def run_with_reset(comm: Communicator) -> list[Any]:
        comm.all_reduce(ONES)
        if comm.rank:
            monkeypatch.setattr(group.sums_of(comm).memory, "wait", interrupted)
        found = sums(comm)
        if comm.rank == 0:
            group.reset()
            over.set()
        return found + sums(comm)

    monkeypatch.setattr(rejoin, "resynced", noted := Mock(wraps=resynced))
    with LocalGroup(3, geometry=SMALL, slots=4) as without:
        expected = [2 * found for found in without.run(sums)]
    with CutHostGroup(monkeypatch, [0, 1, 1], set()) as group:
        found = group.run(run_with_reset)
        assert noted.call_count == 2
        assert all(group.hosts_of(comm).plan is not None for comm in group.comms), "found again"
    assert all(same(*pair) for pair in zip(found, expected, strict=True))


@pytest.mark.fault("a rank of a host with `rejoin=True` ends in a sum: the others join again at once")
def test_the_end_of_a_process_of_the_host_leads_to_the_next_epoch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Rank 3 stays away until there is another epoch, and takes the place of the one that has ended."""

    def away(*arguments: object) -> None:
        assert joined.wait(LIMIT_S)
        raise JobResetError("rank 2 joined again")

    def run_with_end(comm: Communicator) -> list[Any]:
        comm.all_reduce(ONES)
        if comm.rank == 2:
            memory = group.sums_of(comm).memory
            monkeypatch.setattr(memory, "_processes", (8, 9))
            monkeypatch.setattr(memory, "_watched", [(9, Mock(return_value=True))])
        elif comm.rank == 3:
            monkeypatch.setattr(group.sums_of(comm), "_sum_shard", away)
        return sums(comm)

    joined, reset = threading.Event(), CutHostGroup.reset

    def reset_and_tell(group: CutHostGroup, reason: str) -> None:
        reset(group, reason)
        joined.set()

    monkeypatch.setattr(CutHostGroup, "reset", reset_and_tell)
    with LocalGroup(4, geometry=SMALL, slots=4) as without:
        expected = without.run(sums)
    with CutHostGroup(monkeypatch, [0, 0, 1, 1], set()) as group:
        assert all(same(*pair) for pair in zip(group.run(run_with_end), expected, strict=True))
        assert group.reason == "rank 2 joined again"
    assert "rank 3 of this host, process 9, has ended" in str([vars(record) for record in caplog.records])


def test_the_end_of_a_job_of_a_shard_names_the_ranks_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    with CutHostGroup(monkeypatch, [0, 0, 1, 1], set()) as group:
        group.run(lambda comm: comm.all_reduce(ONES))
        for shard in group.shards.groups.values():
            monkeypatch.setattr(shard, "_reset", True)
        found = [group.hosts_of(comm).failure() for comm in group.comms]
        assert all(isinstance(failure, HostLostError) for failure in found)
        assert [str(failure) for failure in found[:3]] == [
            f"the job of a shard was reset: rank {rank} sent no heartbeat; {AGAIN}" for rank in (0, 1, 0)
        ]
        group.run(lambda comm: comm.all_reduce(ONES))

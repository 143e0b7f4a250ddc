"""The job of a process group at a controller that is not there yet."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest
import torch.distributed as dist

from p4reduce.errors import JoinError
from p4reduce.launch import launch
from p4reduce.launch.launch import Told
from p4reduce.pytorch.backend import jobs
from p4reduce.pytorch.backend.options import Options
from p4reduce_contracts.jobs import client as client_module
from p4reduce_contracts.jobs.answers import JobInfo
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import ControllerUnreachableError, SwitchAwayError
from p4reduce_runtime.kernels import CompilationError
from rigs.limits import wait_until

AWAY = Options(controller="127.0.0.1:9")


class Client(JobClient):
    """One whose controller first is away, then without its switch, and then creates jobs; or never comes."""

    errors: ClassVar[list[Exception]] = []

    def create_job(self, name: str, world_size: int, *given: Any, **options: Any) -> JobInfo:
        if self.errors:
            raise self.errors.pop(0)
        return JobInfo(name, 1, world_size, 0, 8, "FORMING", 0, (), "")


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "JobClient", Client)
    monkeypatch.setattr(sys.modules["p4reduce.membership.join"], "_RETRY_S", 0.01)
    monkeypatch.setattr(jobs, "join", lambda name, **settings: name)


def joined(timeout_s: float, options: Options | list[Options] = AWAY, *, subgroup: bool = False) -> list[Any]:
    """Return what each of two ranks joined, or its error. `options`: of both, or of each."""
    store, of_ranks = dist.HashStore(), options if isinstance(options, list) else [options, options]

    def rank_main(rank: int) -> Any:
        try:
            with Told(store, timeout_s).telling(rank, 2):
                return jobs.join_job(store, rank, 2, timeout_s, of_ranks[rank], subgroup=subgroup).comm
        except JoinError as error:
            return str(error)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(rank_main, range(2)))


def test_all_ranks_wait_for_a_controller_that_starts_and_for_its_switch() -> None:
    Client.errors = [ControllerUnreachableError("no controller"), SwitchAwayError("no switch")]
    one, other = joined(60)
    assert one == other and one.startswith("torch-")


def test_a_subgroup_of_a_world_of_another_backend_says_at_once_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("P4REDUCE_CONTROLLER", raising=False)
    monkeypatch.setattr(jobs, "is_controller", lambda address: False)
    one, other = joined(60, Options(), subgroup=True)
    assert one == other and "another backend: name a controller" in one


def test_a_rank_that_cannot_load_kernels_makes_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """It loads them first: a job without members would hold its slots meanwhile."""
    monkeypatch.setattr("p4reduce_runtime.kernels.preload", Mock(side_effect=CompilationError("no numba")))
    Client.errors = [AssertionError("a job was made")]
    assert all("no numba" in told for told in joined(60))
    assert len(Client.errors) == 1


def test_after_the_timeout_all_ranks_say_what_they_waited_for() -> None:
    Client.errors = [ControllerUnreachableError("no controller")] * 1000
    told = "rank 0 could not make a job of 2 ranks at the controller 127.0.0.1:9 in 0.05 s: no controller"
    assert joined(0.05) == [told, told]


def test_what_ends_the_joining_of_one_rank_ends_that_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def join(name: str, *, rank: int, check: Callable[[], None], **settings: Any) -> None:
        if rank:
            raise RuntimeError("no memory")
        wait_until(check)

    monkeypatch.setattr(jobs, "join", join)
    Client.errors = []
    assert joined(60) == ["rank 1: no memory", "rank 1: no memory"]


@pytest.mark.fault("P4REDUCE_CONTROLLER is set on some ranks only: all have one error at once")
@pytest.mark.parametrize("named", [0, 1])
def test_ranks_that_differ_in_naming_a_controller_are_told_at_once(monkeypatch: pytest.MonkeyPatch, named: int) -> None:
    monkeypatch.delenv("P4REDUCE_CONTROLLER", raising=False)
    monkeypatch.setattr(launch, "_HEAR_S", 0.1)
    monkeypatch.setattr(jobs, "join", lambda name, *, check, **settings: wait_until(check))
    Client.errors = []
    told = joined(60, [AWAY if rank == named else Options() for rank in range(2)])
    assert len(set(told)) == 1 and "names a controller or a job" in told[0] and "alike on all ranks" in told[0]


def test_the_rank_that_made_a_job_removes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[str] = []
    monkeypatch.setattr(JobClient, "remove_job", lambda _, name: removed.append(name))
    for made in (None, JobInfo("torch-1", 1, 2, 0, 8, "FORMING", 0, (), "")):
        jobs.GroupJob(Mock(), None, made, "127.0.0.1:1").close()
    assert removed == ["torch-1"]

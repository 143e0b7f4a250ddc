"""Communicators in one process whose ranks are put on hosts: each shard has a reference switch of its own."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from p4reduce.communicator import Communicator
from p4reduce.epoch import EpochMembership
from p4reduce.errors import CollectiveError, JobResetError
from p4reduce.paths.hosts import find
from p4reduce.paths.hosts.find import Hosts, ShardJob
from p4reduce.paths.hosts.sums import HostSums
from p4reduce.paths.switch import SwitchPath
from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts.jobs.errors import SwitchFullError
from p4reduce_contracts.wire.geometry import SMALL
from rigs.cut_runs import CutGroup, slow_clock


class LocalShards:
    """The jobs of shards, each a `group`; `full`: the switch has no room for them."""

    def __init__(self, *, group: Callable[..., LocalGroup] = LocalGroup, full: bool = False) -> None:
        self.groups: dict[str, LocalGroup] = {}
        self._group = group
        self.full = full
        self.removed = 0

    def create(self, job: str, count: int, world_size: int, slots: int, *, private: bool) -> list[ShardJob]:
        if self.full:
            raise SwitchFullError("the switch has no free slots")
        names = [f"{secrets.token_hex(6)}-{shard}" for shard in range(count)]
        self.groups.update({name: self.make(world_size, slots) for name in names})
        return [ShardJob(name, "") for name in names]

    def make(self, world_size: int, slots: int) -> LocalGroup:
        return self._group(world_size, slots=slots)

    def join(self, job: ShardJob, rank: int, world_size: int, timeout_s: float) -> EpochMembership:
        comm = self.groups[job.name].comms[rank]
        return EpochMembership(comm.lease, comm.over_switch.transport, None)

    def remove(self) -> None:
        self.removed += 1


class HostGroup(LocalGroup):
    """A LocalGroup whose rank r is on host `hosts[r]`; a shard's job is a `shard_group`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, hosts: Sequence[int], *further: Any, **options: Any) -> None:
        """`further` and `options`: those of the group."""
        self.shard_group = options.pop("shard_group", LocalGroup)
        self.shards = self.make_shards(full=options.pop("full", False))
        super().__init__(len(hosts), *further, **options)
        of_thread = threading.local()
        monkeypatch.setattr(find, "host_key", lambda environment: of_thread.key)

        keep_words = self.comms[0].failure.recovery is not None

        class Found(Hosts):
            def __init__(self, jobs: Any, host: int) -> None:
                super().__init__(jobs, keep_words=keep_words)
                self._host = host

            def find(self, *arguments: Any) -> None:
                of_thread.key = f"host {self._host}"
                super().find(*arguments)

        for comm, host in zip(self.comms, hosts, strict=True):
            comm.hosts = Found(self.shards, host)

    def make_shards(self, *, full: bool) -> LocalShards:
        return LocalShards(group=self.shard_group, full=full)

    def hosts_of(self, comm: Communicator) -> Hosts:
        assert comm.hosts is not None
        return comm.hosts

    def sums_of(self, comm: Communicator) -> HostSums:
        found = self.hosts_of(comm).sums
        assert found is not None
        return found


class CutShard(LocalGroup):
    """A shard's job whose answers count among those of the communicators' job; it can be reset alone."""

    def __init__(self, owner: CutHostGroup, world_size: int, slots: int) -> None:
        self._owner, self._reset = owner, False
        super().__init__(world_size, geometry=SMALL, slots=slots)

    def deliver(self, rank: int, payload: bytes) -> None:
        with self._lock:
            for to, answer in () if self._reset else self.switch.process(rank, payload):
                with self._owner._lock:
                    self._reset = self._owner.is_cut()
                    if self._reset and self._owner.all_jobs:
                        self._owner.reset()
                if self._reset:
                    return
                self.inboxes[to].put(answer)

    def failure(self) -> CollectiveError | None:
        return JobResetError("rank 0 sent no heartbeat") if self._reset else None

    def leave(self) -> None:
        pass


class CutShards(LocalShards):
    def __init__(self, owner: CutHostGroup, *, full: bool) -> None:
        super().__init__(full=full)
        self._owner = owner

    def make(self, world_size: int, slots: int) -> CutShard:
        return CutShard(self._owner, world_size, slots)

    def join(self, job: ShardJob, rank: int, world_size: int, timeout_s: float) -> EpochMembership:
        shard = self.groups[job.name]
        assert isinstance(shard, CutShard)
        return super().join(job, rank, world_size, timeout_s)._replace(membership=shard)


class CutHostGroup(HostGroup, CutGroup):
    """A CutGroup on hosts. A reset at an answer of a shard's switch is one of this shard's job, or of `all_jobs`."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *arguments: Any, all_jobs: bool = False, **options: Any
    ) -> None:
        self.all_jobs = all_jobs
        monkeypatch.setattr(find, "SwitchPath", partial(SwitchPath, clock=slow_clock))
        super().__init__(monkeypatch, *arguments, **options)

    def make_shards(self, *, full: bool) -> LocalShards:
        return CutShards(self, full=full)

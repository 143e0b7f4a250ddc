"""Communicators in one process whose ranks are put on hosts: each shard has a reference switch of its own."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from p4reduce.communicator import Communicator
from p4reduce.hosts import find
from p4reduce.hosts.find import Hosts, ShardJob
from p4reduce.membership import EpochMembership
from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts.jobs.errors import SwitchFullError


class LocalShards:
    """The jobs of shards, each a `make`; `full`: the switch has no room for them."""

    def __init__(self, make: Callable[..., LocalGroup], *, full: bool = False) -> None:
        self.groups: dict[str, LocalGroup] = {}
        self._make = make
        self.full = full
        self.removed = 0

    def create(self, job: str, count: int, world_size: int, slots: int, *, private: bool) -> list[ShardJob]:
        if self.full:
            raise SwitchFullError("the switch has no free slots")
        names = [f"{secrets.token_hex(6)}-{shard}" for shard in range(count)]
        self.groups.update({name: self._make(world_size, slots=slots) for name in names})
        return [ShardJob(name, "") for name in names]

    def join(self, job: ShardJob, rank: int, world_size: int, timeout_s: float) -> EpochMembership:
        comm = self.groups[job.name].comms[rank]
        return EpochMembership(comm.lease, comm.transport, None)

    def remove(self) -> None:
        self.removed += 1


class HostGroup(LocalGroup):
    """A LocalGroup whose rank r is on host `hosts[r]`; a shard's job is a `shard_group`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, hosts: Sequence[int], **options: Any) -> None:
        self.shards = LocalShards(options.pop("shard_group", LocalGroup), full=options.pop("full", False))
        super().__init__(len(hosts), **options)
        of_thread = threading.local()
        monkeypatch.setattr(find, "host_key", lambda environment: of_thread.key)

        class Found(Hosts):
            def __init__(self, jobs: find.ShardJobs, host: int) -> None:
                super().__init__(jobs)
                self._host = host

            def find(self, *arguments: Any) -> Any:
                of_thread.key = f"host {self._host}"
                return super().find(*arguments)

        for comm, host in zip(self.comms, hosts, strict=True):
            comm.hosts = Found(self.shards, host)

    def hosts_of(self, comm: Communicator) -> Hosts:
        assert comm.hosts is not None
        return comm.hosts

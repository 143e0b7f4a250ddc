"""Finding the ranks of each host, at a job's first large collective."""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from p4reduce.errors import P4ReduceError
from p4reduce.hosts.memory import HostMemory, MemoryFile
from p4reduce.hosts.plan import HostPlan, make_plan
from p4reduce.hosts.sums import HostSums
from p4reduce.membership import EpochMembership
from p4reduce.switch_connection import SwitchConnection
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.ranks import name_ranks
from p4reduce_runtime.logs import event
from p4reduce_runtime.settings import ConfigError

_log = logging.getLogger(__name__)

VARIABLE: Final = "P4REDUCE_HOSTS"
HOST_ID_VARIABLE: Final = "P4REDUCE_HOSTID"
_FEWEST_SLOTS: Final = 16
_JOIN_S: Final = 30.0
"""How long the ranks that send wait for the leases of their shards."""

Gather = Callable[[bytes], list[bytes]]
"""Gives a rank's bytes to all ranks of the job; returns those of each rank."""


class ShardJob(NamedTuple):
    """A job of the ranks that send one shard, one of each host."""

    name: str
    token: str
    """The members'."""


class ShardJobs(Protocol):
    """Makes and joins the jobs of shards (join.py)."""

    def create(self, count: int, world_size: int, slots: int) -> list[ShardJob]:
        """Make `count` jobs that end with their members. Raises P4ReduceError."""
        ...

    def join(self, job: ShardJob, rank: int, world_size: int, timeout_s: float) -> EpochMembership:
        """Join one. Raises P4ReduceError."""
        ...

    def remove(self) -> None:
        """Remove those that this rank has made. Does not raise: they end without members, too."""
        ...


def hosts_enabled(environment: Mapping[str, str]) -> bool:
    """Return whether ranks of a host add in its memory: P4REDUCE_HOSTS is not "off". ConfigError for other values."""
    wanted = environment.get(VARIABLE) or "on"
    if wanted not in ("on", "off"):
        raise ConfigError(f"{VARIABLE} is {wanted!r}; it has to be on or off")
    return wanted == "on"


class Hosts:
    """The hosts of a communicator's job, once they are found, and what this rank holds for them."""

    def __init__(self, jobs: ShardJobs) -> None:
        self._jobs = jobs
        self.sums: HostSums | None = None
        """None: before the search, and where no two ranks share a host."""
        self.plan: HostPlan | None = None
        self._searched = False
        self._file: MemoryFile | None = None
        self._memory: HostMemory | None = None
        self._shard: EpochMembership | None = None
        self._connection: SwitchConnection | None = None

    def find(self, lease: Lease, gather: Gather, timeout_s: float) -> HostSums | None:
        """Return what sums over hosts, None if nothing does; all ranks call it at the same collective.

        The first call finds the hosts, by a few small collectives. What `gather` raises ends it; the next call begins
        again.
        """
        if not self._searched:
            try:
                self._search(lease, gather, timeout_s)
            except BaseException:
                self.close()
                raise
            self._searched = True
        return self.sums

    @property
    def shared_bytes(self) -> int:
        """How much memory this rank's host shares at present."""
        return 0 if self._memory is None else self._memory.bytes_used

    def failure(self) -> P4ReduceError | None:
        """Return why the shard that this rank sends cannot be summed any more."""
        return None if self._shard is None or self._shard.membership is None else self._shard.membership.failure()

    def close(self) -> None:
        """Leave the shard's job and give the memory back. Does not raise."""
        self.sums, connection, self._connection = None, self._connection, None
        if connection is not None and not connection.running:
            connection.close_channel()
        shard, self._shard = self._shard, None
        if shard is not None:
            shard.release()
        self._jobs.remove()
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _search(self, lease: Lease, gather: Gather, timeout_s: float) -> None:
        deadline = time.monotonic() + min(timeout_s, _JOIN_S)
        mine = self._own_file(lease.world_size)
        told = [_read(row) for row in gather(json.dumps(mine).encode())]
        key = self._map_leaders(lease.rank, told)
        keys = [row.decode() for row in gather(key.encode())]
        plan = make_plan(keys)
        if plan is None:
            self.close()
            return
        problem, jobs = self._map(plan, lease, told), list[ShardJob]()
        if plan.uses_switch and not lease.rank:
            try:
                slots = max(_FEWEST_SLOTS, lease.slot_count // plan.shards)
                jobs = [] if problem else self._jobs.create(plan.shards, len(plan.hosts), slots)
            except P4ReduceError as error:
                problem = f"no jobs for the shards could be made: {error}"
        answers = [_read(row) for row in gather(json.dumps({"problem": problem, "jobs": jobs}).encode())]
        problem = problem or _first_problem(answers)
        connection = None
        if not problem and plan.uses_switch:
            problem, connection = self._join_shard(plan, lease, answers[0]["jobs"], deadline - time.monotonic())
            problem = problem or ""
            problem = _first_problem([_read(row) for row in gather(json.dumps({"problem": problem}).encode())])
        if problem:
            _log.warning(
                "job %s: every rank sends for itself, as if each had a host of its own: %s", lease.name, problem
            )
            self.close()
            return
        assert self._memory is not None
        self.plan, self._connection = plan, connection
        self.sums = HostSums(plan, lease.rank, self._memory, connection)
        ranks = plan.hosts[plan.host_of(lease.rank)]
        event(
            _log,
            logging.INFO,
            "hosts found",
            job=lease.name,
            rank=lease.rank,
            hosts=len(plan.hosts),
            shards=plan.shards,
            ranks_of_this_host=name_ranks(ranks),
            over="switch" if plan.uses_switch else "memory only",
        )

    def _own_file(self, world_size: int) -> dict[str, Any]:
        """Return what the other ranks need to open a file of this rank's, and the key of its host."""
        try:
            self._file = MemoryFile.create(world_size)
        except (OSError, AttributeError):
            return {"key": secrets.token_hex(8), "pid": 0, "fd": 0, "nonce": ""}
        return {
            "key": host_key(os.environ),
            "pid": os.getpid(),
            "fd": self._file.descriptor,
            "nonce": self._file.nonce.hex(),
        }

    def _map_leaders(self, rank: int, told: Sequence[Mapping[str, Any]]) -> str:
        """Open the file of the first rank of this host; return the host's key, another one if that is not possible."""
        key = str(told[rank]["key"])
        leader = next(other for other, said in enumerate(told) if said["key"] == key)
        if leader != rank:
            said = told[leader]
            try:
                opened = MemoryFile.open(int(said["pid"]), int(said["fd"]), bytes.fromhex(said["nonce"]))
            except OSError as error:
                _log.info("rank %d cannot use memory of rank %d: %s", rank, leader, error)
                return secrets.token_hex(8)
            if self._file is not None:
                self._file.close()
            self._file = opened
        return key

    def _map(self, plan: HostPlan, lease: Lease, told: Sequence[Mapping[str, Any]]) -> str:
        """Map the memory of this host; return why that is not possible, or nothing."""
        ranks = plan.hosts[plan.host_of(lease.rank)]
        if self._file is None:
            return f"rank {lease.rank} cannot make files in memory"
        try:
            self._memory = HostMemory(self._file, ranks, [int(told[rank]["pid"]) for rank in ranks])
        except (OSError, ValueError, OverflowError) as error:
            return f"rank {lease.rank} cannot map memory for {len(ranks)} ranks: {error}"
        return ""

    def _join_shard(
        self, plan: HostPlan, lease: Lease, jobs: Sequence[Sequence[str]], timeout_s: float
    ) -> tuple[str, SwitchConnection | None]:
        """Join the job of this rank's shard, if it sends one; return what went wrong, or the connection."""
        shard = plan.shard_of(lease.rank)
        if shard is None:
            return "", None
        try:
            job, host = ShardJob(*jobs[shard]), plan.host_of(lease.rank)
            self._shard = self._jobs.join(job, host, len(plan.hosts), max(1.0, timeout_s))
            return "", SwitchConnection(self._shard.lease, self._shard.transport, window=None)
        except P4ReduceError as error:
            return f"rank {lease.rank} could not join the job of its shard: {error}", None


def host_key(environment: Mapping[str, str]) -> str:
    """Return what ranks of one host have in common: P4REDUCE_HOSTID, or boot id and network namespace."""
    given = environment.get(HOST_ID_VARIABLE)
    if given:
        return f"id {given}"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"boot {boot} net {os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return secrets.token_hex(8)


def _read(row: bytes) -> dict[str, Any]:
    found = json.loads(row)
    assert isinstance(found, dict)
    return found


def _first_problem(answers: Sequence[Mapping[str, Any]]) -> str:
    """Return the problem of the first rank that has one."""
    return next((str(said["problem"]) for said in answers if said["problem"]), "")

"""Finding the ranks of each host, at a job's first large collective."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import re
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from p4reduce.epoch import EpochMembership
from p4reduce.errors import CollectiveError, HostLostError, JobResetError, P4ReduceError
from p4reduce.paths.hosts.memory import HostMemory, MemoryFile
from p4reduce.paths.hosts.plan import HostPlan, group_of, make_plan
from p4reduce.paths.hosts.sums import HostSums
from p4reduce.paths.switch import SwitchPath
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.ranks import name_ranks
from p4reduce_contracts.wire.side_by_side import MOST_TOGETHER
from p4reduce_runtime.environment import P4REDUCE_HOSTID, P4REDUCE_HOSTS
from p4reduce_runtime.logs import event

_log = logging.getLogger(__name__)

_LONGEST_NAME: Final = 64
_FEWEST_SLOTS: Final = 16
_JOIN_S: Final = 30.0
"""Seconds that the ranks that send wait for the leases of their shards."""

Gather = Callable[[bytes], list[bytes]]
"""A function that gives a rank's bytes to all ranks of the job, and returns those of each rank."""


class ShardJob(NamedTuple):
    """A job of the ranks that send one shard, one of each host."""

    name: str
    token: str
    """The token of the members."""


class ShardJobs(Protocol):
    """Makes and joins jobs of shards as the job of a communicator was joined. Its methods raise any Exception."""

    def create(self, job: str, count: int, world_size: int, slots: int, *, private: bool) -> list[ShardJob]:
        """Make `count` jobs for shards of `job`, which end with their members; of `slots` each, or what is free."""
        ...

    def remove(self) -> None:
        """Remove the jobs of shards that this rank has made. Does not raise."""
        ...

    def join(self, job: ShardJob, rank: int, world_size: int, timeout_s: float) -> EpochMembership:
        """Join one, as long as the communicator's job is not reset."""
        ...


def why_alone(environment: Mapping[str, str]) -> str:
    """Return why this rank shares no memory: P4REDUCE_HOSTS is "off", or its processor; else nothing.

    ConfigError for other values.
    """
    if not P4REDUCE_HOSTS.read(environment):
        return f"{P4REDUCE_HOSTS} is off"
    machine = platform.machine()
    return "" if machine in {"x86_64", "aarch64"} else f"its processor is {machine}"


class Hosts:
    """The hosts of a communicator's job, once they are found, and what this rank holds for them."""

    def __init__(self, jobs: ShardJobs | None, *, keep_words: bool = False, alone: str = "") -> None:
        """`jobs`: None where there is no switch: then all ranks have to be on one host.

        `keep_words`: collectives have `sums`. `alone`: why this rank shares no memory, of which the search tells the
        others.
        """
        self._jobs, self._keep_words, self._alone = jobs, keep_words, alone
        self.sums: HostSums | None = None
        """The sums over this rank's host; None before the search, and where no two ranks share a host."""
        self.plan: HostPlan | None = None
        self.problem = ""
        """The reason why every rank sends for itself, except that no two can share memory."""
        self.searched = False
        self._file: MemoryFile | None = None
        self._memory: HostMemory | None = None
        self._shard: EpochMembership | None = None
        self._senders: dict[str, int] = {}
        """The ranks that send this rank's shard, by the text of their rank in its job."""
        self._connection: SwitchPath | None = None

    def find(self, lease: Lease, gather: Gather, timeout_s: float) -> None:
        """Find the hosts, by a few small collectives; all ranks call it at the same collective.

        What `gather` raises ends it; the next call begins again.
        """
        try:
            self._search(lease, gather, timeout_s)
        except BaseException:
            self.close()
            raise
        self.searched = True

    def reset(self) -> None:
        """Let the next epoch of the job find its hosts: ranks may be other processes. Does not raise."""
        self.close()
        self.searched = False

    @property
    def shared_bytes(self) -> int:
        """Bytes of memory that this rank's host shares at present."""
        memory = self._memory  # another thread may end it
        return 0 if memory is None else memory.bytes_used

    def failure(self) -> P4ReduceError | None:
        """Return why the shard that this rank sends cannot be summed any more."""
        lost = None if self._shard is None or self._shard.membership is None else self._shard.membership.failure()
        if not isinstance(lost, JobResetError):
            return lost
        reason = re.sub(r"\brank (\d+)", lambda said: f"rank {self._senders.get(said[1], said[1])}", lost.reason)
        return HostLostError(f"the job of a shard was reset: {reason}")

    def set_failed(self) -> None:
        """Tell the other ranks of the host that this one will not finish the sum that has begun."""
        if self.sums is not None:
            self.sums.set_failed()

    def close(self, *, finished: bool = False) -> None:
        """Leave the shard's job and give the memory back; `finished` as for `leave`. Does not raise."""
        memory, self._memory = self._memory, None
        if memory is not None:
            memory.close()
        if self._file is not None:
            self._file.close()
            self._file = None
        self.sums = self.plan = None
        connection, self._connection = self._connection, None
        if connection is not None and not connection.running:
            connection.close_channel()
        shard, self._shard = self._shard, None
        with contextlib.suppress(Exception):
            if shard is not None:
                shard.release(finished=finished)
        if self._jobs is not None:
            self._jobs.remove()

    def _search(self, lease: Lease, gather: Gather, timeout_s: float) -> None:
        deadline = time.monotonic() + min(timeout_s / 2, _JOIN_S)
        told = _rows(gather, "file", self._own_file(lease.world_size))
        problem, plan = _problem(told), None
        if not problem:
            keys = _rows(gather, "key", {"key": self._map_leader(lease.rank, told)})
            plan = make_plan([str(row["key"]) for row in keys])
            if self._jobs is None and (plan is None or plan.uses_switch):
                problem, plan = "they cannot all open each other's memory", None
        if plan is not None:
            problem = self._prepare(plan, lease, gather, told, deadline)
        self.problem = problem
        if problem and self._jobs is not None and not all(row["alone"] for row in told):
            level = logging.INFO if lease.rank else logging.WARNING
            text = "job %s: every rank sends for itself, as if each had a host of its own: %s"
            _log.log(level, text, lease.name, problem)
        if problem or plan is None:
            self.close()
            return
        assert self._memory is not None
        self.plan = plan
        self.sums = HostSums(plan, lease.rank, self._memory, self._connection, keep_words=self._keep_words)
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

    def _prepare(
        self, plan: HostPlan, lease: Lease, gather: Gather, told: Sequence[Mapping[str, Any]], deadline: float
    ) -> str:
        """Map the memory and join the shard; return what went wrong on any rank, or nothing."""
        found: dict[str, Any] = {"problem": self._map(plan, lease, told), "jobs": []}
        if plan.uses_switch and not lease.rank and not found["problem"]:
            assert self._jobs is not None
            found |= self._create(self._jobs, plan, lease)
        answers = _rows(gather, "jobs", found)
        problem = _problem(answers)
        if problem or not plan.uses_switch:
            return problem
        failed = self._join_shard(plan, lease, answers[0]["jobs"], deadline - time.monotonic())
        return _problem(_rows(gather, "joined", {"problem": failed}))

    def _own_file(self, world_size: int) -> dict[str, Any]:
        """Return what the other ranks need to open a file of this rank's, and the key of its host."""
        if self._alone:
            return {"problem": self._alone, "alone": True}
        try:
            self._file = file = MemoryFile.create(world_size)
            key = host_key(os.environ)
        except Exception as error:
            return {"problem": f"cannot make files in memory: {error}", "alone": False}
        own = {"key": key, "pid": os.getpid(), "fd": file.descriptor, "nonce": file.nonce.hex()}
        return {"problem": "", "alone": False, **own}

    def _map_leader(self, rank: int, told: Sequence[Mapping[str, Any]]) -> str:
        """Open the file of the first rank of this host; return the host's key, another one if that is not possible."""
        leader = group_of(rank, [str(row["key"]) for row in told])[0]
        if leader != rank:
            said = told[leader]
            try:
                opened = MemoryFile.open(int(said["pid"]), int(said["fd"]), bytes.fromhex(said["nonce"]))
            except Exception as error:
                _log.info("rank %d cannot use memory of rank %d: %s", rank, leader, error)
                return f"rank {rank}"
            if self._file is not None:
                self._file.close()
            self._file = opened
        return f"rank {leader}"

    def _create(self, jobs: ShardJobs, plan: HostPlan, lease: Lease) -> dict[str, Any]:
        """Make the jobs of the shards; return them, and what went wrong."""
        slots = lease.slot_count // len(lease.switches) // plan.shards
        slots = max(_FEWEST_SLOTS, slots - slots % MOST_TOGETHER)
        try:
            return {"jobs": jobs.create(lease.name, plan.shards, len(plan.hosts), slots, private=lease.private)}
        except Exception as error:
            return {"problem": f"no jobs for the shards could be made: {error}"}

    def _map(self, plan: HostPlan, lease: Lease, told: Sequence[Mapping[str, Any]]) -> str:
        """Map the memory of this host; return why that is not possible, or nothing."""
        ranks = plan.hosts[plan.host_of(lease.rank)]
        assert self._file is not None
        try:
            self._memory = HostMemory(self._file, ranks, [int(told[rank]["pid"]) for rank in ranks])
        except Exception as error:
            return f"cannot map memory for {len(ranks)} ranks: {error}"
        return ""

    def _join_shard(self, plan: HostPlan, lease: Lease, jobs: Sequence[Sequence[str]], timeout_s: float) -> str:
        """Join the job of this rank's shard, if it sends one; return what went wrong, or nothing."""
        shard = plan.shard_of(lease.rank)
        if shard is None:
            return ""
        assert self._jobs is not None
        try:
            job, host = ShardJob(*jobs[shard]), plan.host_of(lease.rank)
            self._senders = {str(number): ranks[shard] for number, ranks in enumerate(plan.hosts)}
            self._shard = self._jobs.join(job, host, len(plan.hosts), max(1.0, timeout_s))
            self._connection = SwitchPath(self._shard.lease, self._shard.transport, shards=plan.shards)
        except Exception as error:
            return f"could not join the job of the shard: {error}"
        return ""


def host_key(environment: Mapping[str, str]) -> str:
    """Return what ranks of one host have in common: P4REDUCE_HOSTID, or boot id and network namespace."""
    given = P4REDUCE_HOSTID.read(environment)
    if given:
        return f"id {given}"
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"boot {boot} net {os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return secrets.token_hex(8)


def host_name(environment: Mapping[str, str]) -> str:
    """Return the name of this host, as `job show` has it: P4REDUCE_HOSTID, or that of the machine."""
    name = P4REDUCE_HOSTID.read(environment) or socket.gethostname()
    return "".join(filter(str.isprintable, name))[:_LONGEST_NAME]


def _rows(gather: Gather, step: str, mine: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give what this rank has found at a step to all ranks; return what each has. CollectiveError at another step."""
    found: list[dict[str, Any]] = []
    for rank, row in enumerate(gather(json.dumps({"step": step, **mine}).encode())):
        try:
            said = json.loads(row)
        except ValueError:
            said = None
        if not isinstance(said, dict) or said.get("step") != step:
            raise CollectiveError(f"rank {rank} is not at step {step!r} of the search for hosts; join again")
        found.append(said)
    return found


def _problem(answers: Sequence[Mapping[str, Any]]) -> str:
    """Return the problem of the first rank that has one, and which ranks have it."""
    problem = next((said["problem"] for said in answers if said["problem"]), "")
    ranks = [rank for rank, said in enumerate(answers) if said["problem"] == problem]
    return f"{name_ranks(ranks)}: {problem}" if problem else ""

"""A host of two ranks beside a host of one: every order of the ranks' steps in sums over hosts, on the code itself.

Each rank is a thread with the real Communicator, HostSums and HostMemory, of which one runs at a time. It stops where
it reads or writes the host's memory, looks for flags, or receives a frame. The search (depth-first) chooses which one
goes on, whose frames are lost, and who dies. States are equal if the ranks have seen the same, and memory, switch and
frames are equal; a rank that waits keeps nothing of the flags that did not end its waiting. A way that is not the first
from a state is run again from the beginning.

A sent frame reaches the switch at once: other orders of frames are searched in search.py. When no rank can go on, time
passes for those that wait.
"""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from p4reduce.collectives import Contribution
from p4reduce.communicator import Communicator
from p4reduce.errors import P4ReduceError
from p4reduce.paths.hosts import copies, memory, sums
from p4reduce.paths.hosts.copies import Copies
from p4reduce.paths.hosts.find import Hosts
from p4reduce.paths.hosts.layout import HostCollective, HostLayout
from p4reduce.paths.hosts.memory import HostMemory, MemoryFile
from p4reduce.paths.hosts.plan import HostPlan
from p4reduce.paths.hosts.state import ALL_BLOCKS
from p4reduce.paths.hosts.sums import HostSums
from p4reduce.paths.switch import SwitchPath
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.call import Call
from p4reduce.protocol.collective import Collective
from p4reduce.testing.reference_switch import ReferenceSwitch
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch
from p4reduce_contracts.wire.geometry import SMALL

SMALL_SEARCHES: Final = ({"steps": 2, "piece": 3}, {"steps": 1, "losses": 1}, {"steps": 1, "deaths": 1})
LARGE_SEARCHES: Final = (
    {"steps": 2},
    {"steps": 2, "losses": 1},
    {"steps": 2, "deaths": 1},
    {"steps": 1, "losses": 1, "deaths": 1},
)
PLAN: Final = HostPlan(((0, 1), (2,)))
_TIMEOUT_S: Final = 5.0
_LOOK_S: Final = 0.1
_BLOCKS: Final = 3
_NO_SHARD_JOBS: Final = mock.Mock()

_running: Final = threading.local()  # its `rank` is the RankThread that calls
Choice = tuple[str, int]
"""An event and its rank: the rank goes on, perhaps its next frame is lost, or the frame that it waits for is, or it
dies; or time passes."""


class Abandoned(BaseException):
    """Ends a rank's thread when the search is through with a way."""


class RankThread:
    """One rank, which stops before each step that others can see."""

    def __init__(self, run: Run, rank: int, memory: SteppedMemory) -> None:
        self.run, self.rank, self.memory = run, rank, memory
        self.now, self.at, self.seen = 0.0, "begin", 0
        self.inboxes: dict[int, list[bytes]] = {1: [], 2: []}
        self.flags = b""
        """The flags that it saw when it last looked."""
        self.outcome: object = None
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._abandoned = False
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def stop(self, at: str) -> None:
        """Wait until the search lets this rank go on."""
        self.at = at
        if not self._abandoned:
            self._back.release()
            self._go.acquire()
        if self._abandoned:
            raise Abandoned

    def saw(self, what: object) -> None:
        self.seen = hash((self.seen, self.at, what))

    def go(self) -> None:
        self._go.release()
        self._back.acquire()

    def abandon(self) -> None:
        self._abandoned = True
        self._go.release()
        self._thread.join()

    def waits_for(self) -> int:
        """Return the job of whose frames it waits for one, 0 if it does not."""
        return int(self.at.removeprefix("receive ")) if self.at.startswith("receive ") else 0

    def _main(self) -> None:
        _running.rank = self
        self._go.acquire()
        try:
            if not self._abandoned:
                self.outcome = self.run.collectives(self)
        except Abandoned:
            return
        except Exception as error:  # noqa: BLE001 - the search looks at it
            self.outcome = error
            self.saw(str(error))
        self.at = "end"
        self._back.release()


class _Transport:
    def __init__(self, rank: RankThread, job: int) -> None:
        self._rank, self._job = rank, job

    def send(self, frames: Sequence[bytes]) -> None:
        for frame in frames:
            self._rank.run.send(self._rank.rank, self._job, frame)

    def receive(self, timeout_s: float) -> list[bytes]:
        rank = self._rank
        if timeout_s > 0:
            rank.stop(f"receive {self._job}")
        found = rank.inboxes[self._job][:1]
        del rank.inboxes[self._job][:1]
        rank.now += 0.0 if found else timeout_s
        rank.saw((*found, timeout_s))
        return found

    def close(self) -> None:
        pass


class SteppedMemory(HostMemory):
    """The host's memory, as one rank sees it; the rank stops before each operation."""

    rank: RankThread

    def stop(self, at: str) -> None:
        """Stop, where other ranks see the memory."""
        if len(self.ranks) > 1:
            self.rank.stop(at)

    def nonzero(self, place: int) -> NDArray[np.bool_]:
        self.stop(f"blocks {place}")
        found = super().nonzero(place)
        self.rank.saw(found[:_BLOCKS].tobytes())
        return found

    def exponents(self, place: int) -> NDArray[np.uint8]:
        if place == len(self.ranks):
            self.see_sums()
        return super().exponents(place)

    def see_sums(self) -> None:
        self.stop("sums")
        self.rank.saw(self.sums[: _BLOCKS * SMALL.block_words].tobytes())

    def wait(self, *arguments: Any, **options: Any) -> None:
        self.rank.saw(self.rank.now)  # when its time is up depends on it
        super().wait(*arguments, **options)
        self.rank.saw("flags")

    def _sleeps(self, place: int, awaited: tuple[int, int, int], timeout_s: float, yields: int) -> bool:
        first, count, least = awaited
        numbers = self.control[first : first + count]
        if not (numbers < least).any():
            return False
        self.rank.flags = self.flags()
        self.rank.stop("look")
        self.rank.now += _LOOK_S if self.flags() == self.rank.flags else 0.0
        return bool((numbers < least).any())

    def finished(self, shard: int, number: int) -> int:
        found = super().finished(shard, number)
        if found:
            self.rank.saw(found)
        return found

    def set_done(self, place: int, number: int) -> None:
        self.stop("done")
        super().set_done(place, number)

    def set_failed(self, place: int, number: int) -> None:
        self.stop("failed")
        super().set_failed(place, number)

    def content(self) -> bytes:
        size, places = _BLOCKS * SMALL.block_words, range(len(self.ranks) + 1)
        rows = [self.data[place * self.input_words :][:size] for place in places]
        tables = [table[place][:_BLOCKS] for table in (self._exponents, self._nonzero) for place in places]
        return self.flags() + b"".join(array.tobytes() for array in (*rows, *tables))

    def flags(self) -> bytes:
        return b"".join(flags.tobytes() for flags in (self._done, self._failed, self.published, self._finished))


class _Time:
    """The module `time` as hosts/ uses it: of each rank its own, which passes when it waits."""

    def monotonic(self) -> float:
        return float(_running.rank.now)

    def sleep(self, seconds: float) -> None:
        _running.rank.now += seconds


class Run:
    """One way through the job: some sums, one after the other."""

    def __init__(self, steps: int, losses: int, deaths: int, host_sums: type[HostSums]) -> None:
        self._steps = range(steps)
        self.left = {"lose": losses, "die": deaths}
        self.dead: set[int] = set()
        self._loses = self.sent = False
        self._host_sums = host_sums
        self.switches = {1: ReferenceSwitch(SMALL, 2), 2: ReferenceSwitch(SMALL, 2)}
        for job, size in ((1, 3), (2, 2)):
            self.switches[job].add_job(job, 1, size, 0, 2, range(size))
        files = [MemoryFile.create(2), MemoryFile.create(1)]
        memories = [SteppedMemory(files[host], PLAN.hosts[host], PLAN.hosts[host]) for host in (0, 0, 1)]
        self.ranks = [RankThread(self, rank, mapped) for rank, mapped in enumerate(memories)]
        for rank, mapped in zip(self.ranks, memories, strict=True):
            mapped.close()
            mapped.rank = rank
            mapped._watched = [(other, self._ended(other)) for other in mapped.ranks if other != rank.rank]

    def _ended(self, rank: int) -> Any:
        return lambda: rank in self.dead and not _running.rank.saw(("ended", rank))

    def collectives(self, rank: RankThread) -> object:
        """Call a rank's collectives; return its sums."""
        transports = {job: _Transport(rank, job) for job in (1, 2)}
        connection = None
        options: dict[str, Any] = {"clock": lambda: rank.now}
        if PLAN.shard_of(rank.rank) is not None:
            connection = SwitchPath(_lease(rank.rank, 2), transports[2], **options)
        comm = Communicator(_lease(rank.rank, 1), transports[1], timeout_s=_TIMEOUT_S, **options)
        comm.hosts = Hosts(_NO_SHARD_JOBS)
        comm.hosts.searched = True
        comm.hosts.sums = self._host_sums(PLAN, rank.rank, rank.memory, connection)
        return [comm.all_reduce(tensor(rank.rank, step)).tobytes() for step in self._steps]

    def send(self, rank: int, job: int, frame: bytes) -> None:
        self.sent = True
        if self._loses:
            return
        senders = (0, 1, 2) if job == 1 else (0, 2)
        for to, answer in self.switches[job].process(senders.index(rank), frame):
            self.ranks[senders[to]].inboxes[job].append(answer)

    def choices(self) -> list[Choice]:
        alive = [rank for rank in self.ranks if rank.rank not in self.dead and rank.at != "end"]
        ready = [rank for rank in alive if self._is_ready(rank)]
        found = [("go", rank.rank) for rank in ready] or ([("time", -1)] if alive else [])
        if self.left["lose"]:
            found += [("lose received", rank.rank) for rank in ready if rank.waits_for()]
        if self.left["die"]:
            found += [("die", rank.rank) for rank in alive]
        return found

    def _is_ready(self, rank: RankThread) -> bool:
        if rank.at == "look":
            return rank.memory.flags() != rank.flags
        return not rank.waits_for() or bool(rank.inboxes[rank.waits_for()])

    def take(self, choice: Choice) -> None:
        kind, number = choice
        self.sent = False
        if kind == "time":
            for rank in self.ranks:
                if rank.at != "end" and rank.rank not in self.dead and not self._is_ready(rank):
                    rank.go()
            return
        rank = self.ranks[number]
        if kind != "go":
            self.left[kind.split()[0]] -= 1
        if kind == "die":
            self.dead.add(number)
        elif kind == "lose received":
            del rank.inboxes[rank.waits_for()][:1]
        else:
            self._loses = kind == "lose sent"
            rank.go()
            self._loses = False

    def state(self) -> int:
        """Return what says how it goes on."""
        ranks = [(rank.seen, rank.at, str(rank.inboxes), rank.flags, rank.now) for rank in self.ranks]
        switches = pickle.dumps([switch.cells for switch in self.switches.values()])
        return hash(
            (str(ranks), switches, *(rank.memory.content() for rank in self.ranks[1:]), str(self.left), str(self.dead))
        )

    def broken(self) -> str:
        """Return what must not have happened at the end, or nothing."""
        expected = [sum(tensor(rank, step) for rank in range(3)).tobytes() for step in self._steps]
        for rank in self.ranks:
            if rank.rank in self.dead:
                continue
            if isinstance(rank.outcome, Exception):
                if not self.dead or not isinstance(rank.outcome, P4ReduceError):
                    return f"rank {rank.rank}: {rank.outcome!r}"
                blamed = f"({'|'.join(map(str, self._blamed(rank.rank)))})"
                named = rf"ranks? (\d+, )*{blamed}\b|its log says why"
                if not re.search(named, str(rank.outcome)):
                    return f"rank {rank.rank} does not name rank {min(self.dead)}: {rank.outcome}"
            elif rank.outcome != expected:
                return f"rank {rank.rank} got a wrong sum"
        return ""

    def _blamed(self, rank: int) -> set[int]:
        """Return whom an error may name: the dead, and on the other host who failed because of them."""
        others = {it.rank for it in self.ranks if PLAN.host_of(it.rank) != PLAN.host_of(rank)}
        return self.dead | {other for other in others if isinstance(self.ranks[other].outcome, Exception)}

    def end(self) -> None:
        for rank in self.ranks:
            if rank.at != "end":
                rank.abandon()


@cache
def _lease(rank: int, job: int) -> Lease:
    place, size = (rank, 3) if job == 1 else (PLAN.host_of(rank), 2)
    return Lease(
        job, f"job {job}", 1, place, size, 1, SMALL.columns, SMALL.block_words, switches=(LeasedSwitch(secret=place),)
    )


@cache
def tensor(rank: int, step: int) -> NDArray[np.int32]:
    """What a rank contributes: the sum's digits say who is in it; rank 1 holds the last two blocks."""
    values = np.full((_BLOCKS, SMALL.block_words), (1 + step) * 16**rank, np.int32)
    values[0] *= rank != 1
    return values.reshape(-1)


@contextmanager
def _stepped(piece: int) -> Iterator[None]:
    """Let the ranks stop where others see what they do, with `piece` blocks in a piece."""
    contribute, copy_in, copy_out = Collective._contribute, Copies.copy_in, HostLayout.copy_out

    def copied(self: Copies) -> bool:
        if 0 < self._copied_in < self._end:
            _running.rank.memory.stop("copy in")
        return copy_in(self)

    def copied_out(self: HostLayout, first: int, last: int) -> None:
        _running.rank.memory.see_sums()
        copy_out(self, first, last)

    def stepped(self: Collective, *arguments: Any) -> list[bytes]:
        frames = contribute(self, *arguments)
        _running.rank.saw(int(self._state["published"]))
        return frames

    with (
        mock.patch.object(memory, "time", _Time()),
        mock.patch.object(sums, "time", _Time()),
        mock.patch("p4reduce.paths.switch.SwitchPath.least_host_bytes", 1),
        mock.patch.object(copies, "PIECE_WORDS", piece * SMALL.block_words),
        mock.patch.object(Collective, "_contribute", stepped),
        mock.patch.object(Copies, "copy_in", copied),
        mock.patch.object(HostLayout, "copy_out", copied_out),
    ):
        yield


def explore_hosts(
    steps: int, *, losses: int = 0, deaths: int = 0, piece: int = 2, host_sums: type[HostSums] = HostSums
) -> tuple[int, str, list[Choice]]:
    """Search all orders of `steps` sums; return how many states there are, what is broken, and the way to it.

    `piece`: blocks in a piece.
    """
    seen: set[int] = set()
    ways: list[list[Choice]] = [[]]
    with _stepped(piece):
        while ways:
            way = ways.pop()
            run = Run(steps, losses, deaths, host_sums)
            try:
                for choice in way:
                    run.take(choice)
                while True:
                    if run.sent and way[-1][0] == "go" and run.left["lose"]:
                        ways.append([*way[:-1], ("lose sent", way[-1][1])])
                    if (state := run.state()) in seen:
                        break
                    seen.add(state)
                    choices = run.choices()
                    if not choices:
                        if problem := run.broken():
                            return len(seen), problem, way
                        break
                    ways += [[*way, choice] for choice in choices[1:]]
                    way = [*way, choices[0]]
                    run.take(choices[0])
            finally:
                run.end()
    return len(seen), "", []


class PublishesLate(HostSums):
    """A mutant: a rank writes its data after the calls were compared, so another one may read before."""

    def publish(self, blocks: Blocks, layout: HostLayout) -> Any:
        return mock.Mock(in_meanwhile=lambda _: 1.0)

    def sum(
        self, call: Call, contribution: Contribution, layout: HostLayout, copies: Any, *arguments: Any
    ) -> HostCollective:
        return super().sum(call, contribution, layout, super().publish(contribution.blocks, layout), *arguments)


class WaitsForNoShard(HostSums):
    """A mutant: a rank reads the sums that others have not made yet."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.memory.wait = lambda *_: None  # type: ignore[method-assign]


class PublishesNoPieces(HostSums):
    """A mutant: a rank says with its first piece that all are there."""

    def publish(self, *arguments: Any) -> Any:
        copies = super().publish(*arguments)
        self.memory.set_published(self.place, ALL_BLOCKS)
        return copies


class CopiesUnfinishedPieces(HostSums):
    """A mutant: a rank copies the sums of a piece that has none yet."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        finished = self.memory.finished
        self.memory.finished = lambda *which: finished(*which) + 2  # type: ignore[method-assign]


HOST_MUTANTS: Final = (PublishesLate, WaitsForNoShard, PublishesNoPieces, CopiesUnfinishedPieces)

"""Going on over the process group while the switch is away, and coming back to it.

What the switch does to a collective is an integer sum of blocks at agreed exponents, and a process group can do it too:
the largest exponent of each block, then the sum of the words modulo 2^32. So a collective has the same bits either way,
compressors see no difference, and a run that fell back equals one that did not.

Which collectives go which way is the same on all ranks, since only what all have gathered decides it. A rank whose job
was reset, or whose collective timed out, leaves the switch and tells the others before each collective: how many it
has ended, what it calls, and in which epoch of the job it has a place. With different numbers, those behind catch up
(standing.py); with a place in one epoch on all ranks, all go back to the switch with this very collective; else it
takes place here. A rank that has not noticed yet is waited for: it ends at most the collective that all contributed to
before, since the ranks that left the switch contribute no more.
"""

from __future__ import annotations

import contextlib
import logging
import struct
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final, Protocol

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from p4reduce import waits
from p4reduce.communicator import Communicator
from p4reduce.errors import (
    CollectiveError,
    CollectiveMismatchError,
    CollectiveTimeoutError,
    JobResetError,
    JoinError,
    P4ReduceError,
)
from p4reduce.protocol.call import Call, Kind, agreed_part, describe, kind_of
from p4reduce.protocol.refusal import reason_in
from p4reduce.protocol.source import BlockSource
from p4reduce.rejoin import CLOSE_PATIENCE_S, Joiner, Rejoin, check_same_job, outcome_of
from p4reduce.session import Finished, Place, Session
from p4reduce.standing import Completed, Outcome, Peers, catch_up, pack_standing, unpack_standing
from p4reduce_contracts.jobs.reasons import was_asked_for
from p4reduce_runtime.logs import event

_log = logging.getLogger(__name__)

_CALL: Final = struct.Struct("<5I")
"""The epoch in which a rank has a place, 0 for none, and its call's descriptor."""
_JOIN_S: Final = 30.0
_PAUSE_S: Final = 0.5
_GRACE_S: Final = 30.0


class Group(Peers, Protocol):
    """The ranks, without the switch. Its methods raise RuntimeError when a rank does not come in `patience_s`."""

    patience_s: float

    def largest(self, values: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the largest value of all ranks at each place."""
        ...

    def total(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum over all ranks at each place."""
        ...


class GlooGroup:
    """The ranks over a process group of their own."""

    def __init__(self, group: dist.ProcessGroup, patience_s: float) -> None:
        self._group = group
        self.patience_s = patience_s

    def gather(self, record: bytes) -> list[bytes]:
        """Return every rank's record."""
        mine = _tensor(record)
        rows = [torch.empty_like(mine) for _ in range(self._group.size())]
        self._wait(dist.all_gather(rows, mine, self._group, async_op=True))
        return [row.numpy().tobytes() for row in rows]

    def fetch(self, rank: int, data: bytes | None, size: int) -> bytes:
        """Return what that rank has."""
        held = torch.zeros(size, dtype=torch.uint8) if data is None else _tensor(data)
        self._wait(dist.broadcast(held, group=self._group, group_src=rank, async_op=True))
        return held.numpy().tobytes()

    def largest(self, values: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the largest value of all ranks at each place."""
        return self._reduce(values, dist.ReduceOp.MAX)

    def total(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sum over all ranks at each place."""
        return self._reduce(values, dist.ReduceOp.SUM)

    def _reduce(self, values: NDArray[Any], operation: Any) -> NDArray[Any]:
        tensor = torch.from_numpy(values.copy())
        if tensor.numel():
            self._wait(dist.all_reduce(tensor, operation, self._group, async_op=True))
        return tensor.numpy()

    def _wait(self, work: Any) -> None:
        work.wait(timedelta(seconds=self.patience_s))


def _tensor(data: bytes) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy())


def sum_blocks(group: Group, source: BlockSource, block_words: int) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Return the agreed exponents [blocks] and the summed words [blocks, block_words], as the switch would."""
    held = np.where(source.nonzero, source.exponents + np.uint8(1), 0).astype(np.uint8)
    exponents = group.largest(held) - np.uint8(1)  # 0, held by nobody, becomes UNTOUCHED
    words = np.zeros((source.n_blocks, block_words), np.int64)
    mine = np.flatnonzero(source.nonzero)
    if len(mine):
        words[mine] = source.encode(mine, exponents[mine]).view(">i4")
    return exponents, (group.total(words) & 0xFFFFFFFF).astype(">u4").view(">i4")


def check_fallback(comm: Communicator, peers: dist.ProcessGroup | None) -> None:
    """Raise ValueError where `fall_back` with the same arguments is not possible."""
    if not isinstance(comm.session.comeback, Fallback | Rejoin):
        raise ValueError('fallback="gloo" needs a communicator that can come back: p4reduce.join(rejoin=True)')
    if not dist.is_initialized():
        raise ValueError('fallback="gloo" needs the ranks of torch.distributed: call init_process_group first')
    ranks = dist.get_process_group_ranks(peers)
    if (len(ranks), dist.get_rank(peers)) != (comm.world_size, comm.rank):
        raise ValueError(
            f"this is rank {comm.rank} of {comm.world_size} in the job, and rank {dist.get_rank(peers)} of "
            f"{len(ranks)} in the process group: make them equal"
        )


def fall_back(comm: Communicator, peers: dist.ProcessGroup | None) -> None:
    """Let a communicator go on over a gloo group of the ranks in `peers`, None: all, while the switch is away.

    All these ranks call it at once, since it makes that group. `check_fallback` says whether it is possible.
    """
    comeback = comm.session.comeback
    if isinstance(comeback, Fallback):  # as another model that shares the communicator has asked for
        return
    assert isinstance(comeback, Rejoin)
    ranks = dist.get_process_group_ranks(peers)
    # A rank may notice as late as when a collective of its own times out, if the controller cannot tell it.
    patience_s = 2 * comm.session.timeout_s + _GRACE_S
    group = dist.new_group(ranks, timeout=timedelta(seconds=patience_s), backend="gloo", use_local_synchronization=True)
    assert isinstance(group, dist.ProcessGroup)
    comm.session.comeback = Fallback(comeback.joiner, comeback.kept, GlooGroup(group, patience_s))


class Fallback:
    """A session's comeback over a process group (see `session.Comeback`)."""

    def __init__(self, joiner: Joiner, kept: Outcome | None, group: Group) -> None:
        """`kept`: of the last collective that this rank ended."""
        self.joiner = joiner
        self.kept = kept
        self.collectives = 0
        """Done over the process group."""
        self._group = group
        self._patience_s = group.patience_s
        self._away = False
        self._return: _Return | None = None

    def mends(self, error: P4ReduceError) -> bool:
        """Return whether the switch failed, and not a rank that left or the group."""
        if isinstance(error, JobResetError):
            return not was_asked_for(error.reason)
        return isinstance(error, CollectiveTimeoutError)

    def cancel(self) -> None:
        """Come back no more."""
        self.joiner.cancel()
        if self._return is not None:
            self._return.cancel()

    def finish(
        self, session: Session, call: Call, source: BlockSource, attempt: Callable[[], Finished], timeout_s: float
    ) -> Finished:
        """Return what the collective comes to, over the switch or the group."""
        self._group.patience_s = CLOSE_PATIENCE_S if call.kind == Kind.CLOSE else self._patience_s
        while True:
            session.check()
            if self._away:
                try:
                    with _logged(session, call):
                        outcome = self._over_group(session, call, source)
                except RuntimeError as error:
                    failure = CollectiveError(f"the switch is away, and the process group failed too: {error}")
                    session.fail(failure)
                    raise failure from error
                except BaseException as error:  # the ranks may be at different points of the group: let nothing follow
                    interrupted = f"{call} was interrupted by {type(error).__name__}"
                    session.fail(error if isinstance(error, P4ReduceError) else CollectiveError(interrupted))
                    raise
                if outcome is not None:
                    self.kept = outcome
                    session.operations += 1
                    return Completed(call, source, outcome)
                continue
            try:
                finished = attempt()
            except (JobResetError, CollectiveTimeoutError) as error:
                if not self.mends(error):
                    raise
                self._leave_switch(session, error)
            else:
                self.kept = outcome_of(session.operations - 1, finished)
                return finished

    def _leave_switch(self, session: Session, cause: P4ReduceError) -> None:
        self._away = True
        self._return = _Return(session, self.joiner)
        event(
            _log,
            logging.WARNING,
            "switch left",
            job=session.lease.name,
            rank=session.lease.rank,
            operations=session.operations,
            cause=str(cause),
        )

    def _over_group(self, session: Session, call: Call, source: BlockSource) -> Outcome | None:
        """Return what the collective came to; None when there is to be another try, here or over the switch."""
        assert self._return is not None
        lease, back = session.lease, self._return.place()
        standing = pack_standing(session.operations, self.kept)
        rows = self._group.gather(standing + _CALL.pack(0 if back is None else back.lease.epoch, *call.words(0)))
        standings = [unpack_standing(row[: len(standing)]) for row in rows]
        if len({standing.ended for standing in standings}) > 1:
            return catch_up(standings, lease.rank, self.kept, source, lease.block_words, self._group)
        told = [_CALL.unpack(row[len(standing) :]) for row in rows]
        epochs = {epoch for epoch, *_ in told}
        if len(epochs) == 1 and back is not None:
            self._come_back(session, back)
            return None
        self.collectives += 1
        calls = [words for _, *words in told]
        refusals = {rank: reason_in(words) for rank, words in enumerate(calls) if kind_of(words) == Kind.REFUSED}
        willing = [words for rank, words in enumerate(calls) if rank not in refusals]
        closing = bool(refusals) and any(kind_of(words) == Kind.CLOSE for words in willing)
        if len({agreed_part(words) for words in willing}) > 1 or closing:
            raise CollectiveMismatchError({rank: describe(words) for rank, words in enumerate(calls)})
        if refusals:
            return Outcome(session.operations, refusals, np.zeros(0, np.uint8), np.zeros((0, 0), ">i4"))
        return Outcome(session.operations, {}, *sum_blocks(self._group, source, lease.block_words))

    def _come_back(self, session: Session, place: Place) -> None:
        session.renew(place)
        self._away, self._return = False, None
        event(
            _log,
            logging.WARNING,
            "switch joined again",
            job=place.lease.name,
            rank=place.lease.rank,
            epoch=place.lease.epoch,
            operations=session.operations,
        )


@contextlib.contextmanager
def _logged(session: Session, call: Call) -> Iterator[None]:
    """Log once that a collective over the process group takes long; gloo does not say for which ranks it waits."""
    lease, text = session.lease, "rank %d of job %s has waited %.0f s in %s for the other ranks of the process group"
    timer = threading.Timer(waits.LOG_AFTER_S, _log.warning, (text, lease.rank, lease.name, waits.LOG_AFTER_S, call))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _Return:
    """Joins the job again in the background, until there is a place, and anew when that is void."""

    def __init__(self, session: Session, joiner: Joiner) -> None:
        self._session, self._joiner = session, joiner
        self._lock = threading.Lock()
        self._place: Place | None = None
        self._over = threading.Event()
        self._start()

    def place(self) -> Place | None:
        """Return the place that this rank has now, if it has one."""
        with self._lock:
            place = self._place
            if place is None or place.membership is None or place.membership.failure() is None:
                return place
            self._place = None
        place.transport.close()
        self._start()
        return None

    def cancel(self) -> None:
        """Give the place up, or the attempts to get one."""
        self._over.set()
        with self._lock:
            place, self._place = self._place, None
        if place is not None:
            place.give_up()

    def _start(self) -> None:
        threading.Thread(target=self._join, name="p4reduce-return", daemon=True).start()

    def _join(self) -> None:
        while not self._over.is_set():
            place: Place | None = None
            try:
                place = self._joiner.join(_JOIN_S)
                check_same_job(self._session, place)
            except Exception as error:  # whatever it is: nobody else would try again
                level = logging.INFO if isinstance(error, JoinError) else logging.WARNING
                _log.log(level, "not back on the switch yet: %s", error)
                if place is not None:
                    place.give_up()
                self._over.wait(_PAUSE_S)
                continue
            with self._lock:
                if not self._over.is_set():
                    self._place = place
                    return
            place.give_up()

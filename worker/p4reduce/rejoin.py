"""Going on in the same process after the job was reset: join again, agree where the ranks stand, finish the collective.

    attempt -- JobResetError --> join again --> first thing in the new epoch: standings --> catch up, or attempt anew

The caller of the collective sees none of it: it gets its result, the same bits as on the other ranks, later. An epoch
begins with the standings in any case, so that a rank which got its first lease in it meets those that came back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

import numpy as np

from p4reduce.codecs.raw import RawSource, first_bytes
from p4reduce.errors import CollectiveError, JobResetError, JoinError, P4ReduceError
from p4reduce.protocol.call import Call, CodecId, Kind
from p4reduce.protocol.source import BlockSource
from p4reduce.session import Contribution, Finished, Place, Session
from p4reduce.standing import Completed, Outcome, catch_up, pack_standing, unpack_standing
from p4reduce_contracts.jobs.reasons import was_asked_for
from p4reduce_runtime.logs import event

_log = logging.getLogger(__name__)

CLOSE_PATIENCE_S: Final = 10.0
"""How long a rank that closes tries to meet the others again: one of them may be behind."""
_STANDINGS, _CATCHING_UP = 0, 1
"""Operation numbers of an epoch's first collectives."""


class Joiner(Protocol):
    """Joins one job as one rank, again and again."""

    def join(self, timeout_s: float) -> Place:
        """Return the place in a new epoch; that before it is void. Raises JoinError."""
        ...

    def cancel(self) -> None:
        """End a `join` on another thread, and let there be no further one."""
        ...


class OverSwitch:
    """The other ranks, over the switch, at the beginning of an epoch (see `standing.Peers`)."""

    def __init__(self, session: Session, timeout_s: float) -> None:
        self._session, self._timeout_s = session, timeout_s

    def gather(self, record: bytes) -> list[bytes]:
        """Return every rank's record."""
        lease, size = self._session.lease, len(record)
        source = RawSource(np.frombuffer(record, np.uint8), lease.block_words, size, lease.rank, lease.world_size)
        contribution = Contribution(source, CodecId.RAW, elements=size, layout="standings after joining")
        sums = self._session.aside(Kind.ALL_GATHER, contribution, _STANDINGS, self._timeout_s)
        return [row.tobytes() for row in first_bytes(sums[0], size)]

    def fetch(self, rank: int, data: bytes | None, size: int) -> bytes:
        """Return what that rank has."""
        lease = self._session.lease
        mine = np.frombuffer(data or b"", np.uint8)
        source = RawSource(mine, lease.block_words, size, None if data is None else 0)
        contribution = Contribution(source, CodecId.RAW, rank, size, "catching up after joining")
        sums = self._session.aside(Kind.BROADCAST, contribution, _CATCHING_UP, self._timeout_s)
        return bytes(first_bytes(sums[0], size)[0])


class Rejoin:
    """A session's comeback over the switch (see `session.Comeback`)."""

    def __init__(self, joiner: Joiner, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`timeout_s`: for all joining on behalf of one collective."""
        self.joiner = joiner
        self._timeout_s = timeout_s
        self._clock = clock
        self._settled = False
        self._given_up = False
        self.kept: Outcome | None = None
        """Of the last collective that this rank ended."""

    def mends(self, error: P4ReduceError) -> bool:
        """Return whether the job was reset, by no wish of anybody's, and can be joined again as far as is known."""
        return isinstance(error, JobResetError) and not self._given_up and not was_asked_for(error.reason)

    def cancel(self) -> None:
        """End a `finish` that waits for the other ranks."""
        self._given_up = True
        self.joiner.cancel()

    def finish(
        self, session: Session, call: Call, source: BlockSource, attempt: Callable[[], Finished], timeout_s: float
    ) -> Finished:
        """Return what the collective comes to, in this epoch or a later one."""
        deadline: float | None = None
        while True:
            try:
                if not self._settled:
                    behind = self._settle(session, source, timeout_s)
                    self._settled = True
                    if behind is not None:
                        self.kept = behind
                        session.operations += 1
                        return Completed(call, source, behind)
                finished = attempt()
                self.kept = outcome_of(session.operations - 1, finished)
                return finished
            except JobResetError as reset:
                if not self.mends(reset):
                    raise
                if deadline is None:
                    patience_s = min(self._timeout_s, CLOSE_PATIENCE_S) if call.kind == Kind.CLOSE else self._timeout_s
                    deadline = self._clock() + patience_s
                self._join_again(session, reset, deadline)

    def _settle(self, session: Session, source: BlockSource, timeout_s: float) -> Outcome | None:
        try:
            lease, peers = session.lease, OverSwitch(session, timeout_s)
            standings = [unpack_standing(it) for it in peers.gather(pack_standing(session.operations, self.kept))]
            return catch_up(standings, lease.rank, self.kept, source, lease.block_words, peers)
        except CollectiveError as error:
            session.fail(error)
            raise

    def _join_again(self, session: Session, reset: JobResetError, deadline: float) -> None:
        """Go over into the next epoch. Raises what ended the session when that is not to be had in time."""
        old = session.lease
        left_s = deadline - self._clock()
        try:
            if left_s <= 0:
                raise JoinError(f"{self._timeout_s:g} s are over")
            place = self.joiner.join(left_s)
            check_same_job(session, place)
        except JoinError as error:
            self._given_up = True
            reset.add_note(f"joining again failed: {error}")
            event(_log, logging.WARNING, "job not joined again", job=old.name, rank=old.rank, cause=str(error))
            session.check()
            raise
        self._settled = False  # before an interrupt can come between
        session.renew(place)
        event(
            _log,
            logging.WARNING,
            "job joined again",
            job=old.name,
            rank=old.rank,
            epoch=place.lease.epoch,
            operations=session.operations,
            cause=reset.reason,
        )


def outcome_of(number: int, finished: Finished) -> Outcome:
    """Copy what a collective over the switch came to."""
    if finished.refusals:
        return Outcome(number, finished.refusals, np.zeros(0, np.uint8), np.zeros((0, 0), ">i4"))
    return Outcome(number, {}, finished.agreed_exponents.copy(), finished.sums.astype(">i4"))


def check_same_job(session: Session, place: Place) -> None:
    """Raise JoinError, and give the place up, when the new lease is for other collectives than the old one."""
    shapes = [
        (it.world_size, it.rank, it.slot_count, it.columns, it.block_words, it.lane_bits, it.lane_bound)
        for it in (session.lease, place.lease)
    ]
    if shapes[0] != shapes[1]:
        place.give_up()
        raise JoinError(f"job {place.lease.name!r} was made anew with other settings: start all ranks anew")

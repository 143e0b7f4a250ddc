"""Recovery from a reset of the job in the same process: join again, compare the ranks' progress, finish the collective.

    attempt -- JobResetError --> join again --> compare progress --> sync the lagging ranks, or attempt again

The caller of the collective sees none of it: it gets its result, the same bits as on the other ranks, later. An epoch
begins with the comparison in any case, so that a rank which got its first lease in it meets those that came back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from p4reduce import collectives
from p4reduce.collectives import Contribution
from p4reduce.communicator import Communicator
from p4reduce.epoch import EpochMembership, of_rank
from p4reduce.errors import CollectiveError, JobResetError, JoinError, P4ReduceError
from p4reduce.membership.resync import CollectiveOutcome, pack_progress, resynced, sync_lagging_ranks, unpack_progress
from p4reduce.paths.path import FinishedCollective
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.deadline import Deadline
from p4reduce_contracts.jobs.reasons import was_asked_for
from p4reduce_contracts.wire.calls import Kind
from p4reduce_runtime.logs import event

_log = logging.getLogger(__name__)

CLOSE_PATIENCE_S: Final = 10.0
"""Seconds that a rank which closes tries to join the others again: one of them may be a collective behind."""
_PROGRESS, _SYNC = 0, 1
"""Operation numbers of an epoch's first collectives."""


class Rejoin:
    """Finishes collectives although the job was reset during them: joins the job's next epoch and repeats."""

    def __init__(self, join: Callable[[float], EpochMembership], cancel: Callable[[], None], timeout_s: float) -> None:
        """`timeout_s`: seconds for all joining on behalf of one collective.

        `join` joins the job's next epoch within so many seconds, and the membership before it is void; it raises
        JoinError. `cancel` ends a `join` on another thread, and lets there be no further one.
        """
        self._join, self._cancel = join, cancel
        self._timeout_s = timeout_s
        self._agreed = False
        self._given_up = False
        self.kept: CollectiveOutcome | None = None
        """The outcome of the last collective that this rank ended."""

    def can_recover_from(self, error: P4ReduceError) -> bool:
        """Return whether the job was reset without a request to, and can be joined again as far as is known."""
        return isinstance(error, JobResetError) and not self._given_up and not was_asked_for(error.reason)

    def cancel(self) -> None:
        """End a `finish` that waits for the other ranks."""
        self._given_up = True
        self._cancel()

    def attach(self, communicator: Communicator) -> None:
        """Have a communicator's collectives finished by `finish`."""
        communicator.failure.recovery, communicator.path.keep_words = self, True

    def finish(self, communicator: Communicator, contribution: Contribution, limit: Deadline) -> FinishedCollective:
        """Take part in a collective, in this epoch or a later one; return it, or another rank's copy of it.

        `limit`: the deadline of one attempt. Raises CollectiveError when the communicator cannot be used any more.
        """
        communicator.check()
        timeout_s = limit.left_s(communicator.over_switch.clock())
        call, blocks = replace(contribution, number=communicator.operations).call(), contribution.blocks
        deadline: float | None = None
        while True:
            try:
                if not self._agreed:
                    behind = self._agree_on_progress(communicator, blocks, timeout_s)
                    self._agreed = True
                    if behind is not None:
                        self.kept = behind
                        communicator.operations += 1
                        return resynced(call, blocks, behind)
                until = communicator.over_switch.clock() + timeout_s
                finished = communicator.take_part(contribution, Deadline(until, limit.limit_s))
                self.kept = outcome_of(communicator.operations - 1, finished)
                return finished
            except JobResetError as reset:
                if not self.can_recover_from(reset):
                    raise
                if deadline is None:
                    patience_s = min(self._timeout_s, CLOSE_PATIENCE_S) if call.kind == Kind.CLOSE else self._timeout_s
                    deadline = time.monotonic() + patience_s
                self._join_again(communicator, reset, deadline)

    def _agree_on_progress(
        self, communicator: Communicator, blocks: Blocks, timeout_s: float
    ) -> CollectiveOutcome | None:
        try:
            lease = communicator.lease
            mine = pack_progress(communicator.operations, self.kept, lease.world_size)
            progress = [unpack_progress(record) for record in _gather(communicator, mine, timeout_s)]
            fetch = partial(_fetch, communicator, timeout_s)
            return sync_lagging_ranks(progress, lease.rank, self.kept, blocks, lease.block_words, fetch)
        except CollectiveError as error:
            communicator.failure.fail(error)
            raise

    def _join_again(self, communicator: Communicator, reset: JobResetError, deadline: float) -> None:
        """Join the job's next epoch. Raises what ended the communicator when that fails in time."""
        old = communicator.lease
        left_s = deadline - time.monotonic()
        try:
            if left_s <= 0:
                raise JoinError(f"{self._timeout_s:g} s are over")
            epoch = self._join(left_s)
            check_same_job(communicator, epoch)
        except JoinError as error:
            self._given_up = True
            reset.add_note(f"joining again failed: {error}")
            event(_log, logging.WARNING, "job not joined again", **of_rank(old), cause=str(error))
            communicator.check()
            raise
        self._agreed = False  # before an interrupt can come between
        enter_epoch(communicator, epoch)
        event(
            _log,
            logging.WARNING,
            "job joined again",
            **of_rank(old),
            epoch=epoch.lease.epoch,
            operations=communicator.operations,
            cause=reset.reason,
        )


def _gather(communicator: Communicator, record: bytes, timeout_s: float) -> list[bytes]:
    mine = np.frombuffer(record, np.uint8)
    contribution = collectives.gather_bytes(
        communicator.lease, mine, len(mine), "progress after joining", lambda rows: [row.tobytes() for row in rows]
    )
    records: list[bytes] = _run(communicator, contribution, _PROGRESS, timeout_s)
    return records


def _fetch(communicator: Communicator, timeout_s: float, rank: int, data: bytes | None, size: int) -> bytes:
    """Return the `size` bytes that `rank` has. On that rank they are `data`, on the others `data` is None."""
    held = None if data is None else np.frombuffer(data, np.uint8)
    layout = "sums for lagging ranks"
    contribution = collectives.broadcast_bytes(communicator.lease, held, size, rank, layout, lambda row: row.tobytes())
    fetched: bytes = _run(communicator, contribution, _SYNC, timeout_s)
    return fetched


def _run(communicator: Communicator, contribution: Contribution, number: int, timeout_s: float) -> Any:
    """Take part in a collective that no caller asked for, as number `number` of the epoch; return its result."""
    contribution, failure = replace(contribution, number=number), communicator.failure
    failure.check()
    path = communicator.over_switch
    deadline = Deadline(path.clock() + timeout_s, timeout_s)
    finished = communicator.guard(str(contribution.call()), path.run, contribution, deadline, failure.lost)
    return contribution.finish(finished.result())


def enter_epoch(communicator: Communicator, epoch: EpochMembership) -> None:
    """Let a communicator go on in another epoch of the job, as if no collective had been begun in it.

    Raises CommunicatorClosedError when the communicator was closed meanwhile. With that or any other error the
    membership of the new epoch is released.
    """
    before = communicator.over_switch
    try:
        fresh = before.renewed(epoch.lease, epoch.transport)
        try:
            communicator.failure.renew(epoch.membership, partial(setattr, communicator, "path", fresh))
        except BaseException:
            fresh.close_channel()
            raise
    except BaseException:
        epoch.release()
        raise
    before.close()
    if communicator.hosts is not None:
        communicator.hosts.reset()


def outcome_of(number: int, finished: FinishedCollective) -> CollectiveOutcome:
    """Copy the outcome of a collective over the switch."""
    if finished.refusals:
        return CollectiveOutcome(number, finished.refusals, np.zeros(0, np.uint8), np.zeros((0, 0), ">i4"))
    return CollectiveOutcome(number, {}, finished.agreed_exponents.copy(), finished.sums.astype(">i4"))


def check_same_job(communicator: Communicator, epoch: EpochMembership) -> None:
    """Raise JoinError, and release the epoch, when its lease is for other collectives than the old one."""
    shapes = [
        (it.world_size, it.rank, it.slot_count // len(it.switches), it.columns, it.block_words)
        for it in (communicator.lease, epoch.lease)
    ]
    if shapes[0] != shapes[1]:
        epoch.release()
        raise JoinError(f"job {epoch.lease.name!r} was made anew with other settings: start all ranks anew")

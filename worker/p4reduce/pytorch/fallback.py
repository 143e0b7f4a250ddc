"""Collectives over a process group while the switch cannot be reached, and the return to the switch.

The switch computes an integer sum of blocks at agreed exponents, and a process group can compute it too: the largest
exponent of each block, then the sum of the words modulo 2^32. So a collective has the same bits either way, compressors
see no difference, and a run that fell back equals one that did not.

All ranks take the same path in each collective, since only what all have gathered decides it. A rank whose job was
reset, or whose collective timed out, leaves the switch and sends the others before each collective how many it has
ended, what it calls, and the epoch that it has joined. If the numbers differ, the lagging ranks are synced (resync.py);
if all ranks have joined the same epoch, all return to the switch with this collective; otherwise it is summed here. The
ranks wait for one that has not noticed the reset yet: it ends at most the collective that all contributed to before,
since the ranks that left the switch contribute no more.
"""

from __future__ import annotations

import contextlib
import logging
import struct
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from p4reduce.communicator import Communicator
from p4reduce.epoch import EpochMembership
from p4reduce.errors import CollectiveError, CollectiveTimeoutError, JobResetError, JoinError, P4ReduceError
from p4reduce.membership.rejoin import CLOSE_PATIENCE_S, Joiner, Rejoin, check_same_job, outcome_of
from p4reduce.membership.resync import (
    CollectiveOutcome,
    ResyncedCollective,
    pack_progress,
    sync_lagging_ranks,
    unpack_progress,
)
from p4reduce.paths import waits
from p4reduce.paths.finished import FinishedCollective
from p4reduce.protocol.blocks import Blocks, Words
from p4reduce.protocol.call import Call, Kind, compare_calls
from p4reduce_contracts.jobs.reasons import was_asked_for
from p4reduce_runtime.logs import event

_log = logging.getLogger(__name__)

_CALL: Final = struct.Struct("<5I")
"""The epoch that a rank has joined, 0 for none, and its call's descriptor."""
_JOIN_S: Final = 30.0
_PAUSE_S: Final = 0.5
_GRACE_S: Final = 30.0


class GlooGroup:
    """The ranks over a process group of their own, without the switch (see `resync.Peers`).

    Its methods raise RuntimeError when a rank does not come in `patience_s`.
    """

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
        """Return the elementwise maximum over all ranks."""
        return self._reduce(values, dist.ReduceOp.MAX)

    def total(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the elementwise sum over all ranks."""
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


def sum_blocks(group: GlooGroup, blocks: Blocks, block_words: int) -> tuple[NDArray[np.uint8], Words]:
    """Return the agreed exponents [blocks] and the summed words [blocks, block_words], as the switch would."""
    held = np.where(blocks.nonzero, blocks.exponents + np.uint8(1), 0).astype(np.uint8)
    exponents = group.largest(held) - np.uint8(1)  # 0, held by no rank, becomes UNTOUCHED
    words = np.zeros((blocks.n_blocks, block_words), np.int64)
    mine = np.flatnonzero(blocks.nonzero)
    if len(mine):
        words[mine] = blocks.encode(mine, exponents[mine]).view(">i4")
    return exponents, (group.total(words) & 0xFFFFFFFF).astype(">u4").view(">i4")


def check_fallback(comm: Communicator, peers: dist.ProcessGroup | None) -> None:
    """Raise ValueError where `fall_back` with the same arguments is not possible."""
    if not isinstance(comm.recovery, Fallback | Rejoin):
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
    recovery = comm.recovery
    if isinstance(recovery, Fallback):  # as another model that shares the communicator has asked for
        return
    assert isinstance(recovery, Rejoin)
    ranks = dist.get_process_group_ranks(peers)
    # Without the controller a rank may notice only when a collective of its own times out.
    patience_s = 2 * comm.timeout_s + _GRACE_S
    group = dist.new_group(ranks, timeout=timedelta(seconds=patience_s), backend="gloo", use_local_synchronization=True)
    assert isinstance(group, dist.ProcessGroup)
    comm.recovery = Fallback(recovery.joiner, recovery.kept, GlooGroup(group, patience_s))


class Fallback:
    """Recovery over a process group (see `communicator.RecoveryPolicy`)."""

    def __init__(self, joiner: Joiner, kept: CollectiveOutcome | None, group: GlooGroup) -> None:
        """`kept`: of the last collective that this rank ended."""
        self.joiner = joiner
        self.kept = kept
        self.collectives = 0
        """Done over the process group."""
        self._group = group
        self._patience_s = group.patience_s
        self._away = False
        self._return: _Return | None = None

    def can_recover_from(self, error: P4ReduceError) -> bool:
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
        self,
        communicator: Communicator,
        call: Call,
        blocks: Blocks,
        attempt: Callable[[], FinishedCollective],
        timeout_s: float,
    ) -> FinishedCollective:
        """Return what the collective comes to, over the switch or the group."""
        self._group.patience_s = CLOSE_PATIENCE_S if call.kind == Kind.CLOSE else self._patience_s
        while True:
            communicator.check()
            if self._away:
                try:
                    with _logged(communicator, call):
                        outcome = self._over_group(communicator, call, blocks)
                except RuntimeError as error:
                    failure = CollectiveError(f"the switch is away, and the process group failed too: {error}")
                    communicator.fail(failure)
                    raise failure from error
                except BaseException as error:  # the ranks may be at different points of the group: let nothing follow
                    interrupted = f"{call} was interrupted by {type(error).__name__}"
                    communicator.fail(error if isinstance(error, P4ReduceError) else CollectiveError(interrupted))
                    raise
                if outcome is not None:
                    self.kept = outcome
                    communicator.operations += 1
                    return ResyncedCollective(call, blocks, outcome)
                continue
            try:
                finished = attempt()
            except (JobResetError, CollectiveTimeoutError) as error:
                if not self.can_recover_from(error):
                    raise
                self._leave_switch(communicator, error)
            else:
                self.kept = outcome_of(communicator.operations - 1, finished)
                return finished

    def _leave_switch(self, communicator: Communicator, cause: P4ReduceError) -> None:
        self._away = True
        self._return = _Return(communicator, self.joiner)
        event(
            _log,
            logging.WARNING,
            "switch left",
            job=communicator.lease.name,
            rank=communicator.lease.rank,
            operations=communicator.operations,
            cause=str(cause),
        )

    def _over_group(self, communicator: Communicator, call: Call, blocks: Blocks) -> CollectiveOutcome | None:
        """Return what the collective came to; None when there is to be another try, here or over the switch."""
        assert self._return is not None
        lease, back = communicator.lease, self._return.epoch()
        mine = pack_progress(communicator.operations, self.kept, communicator.lease.world_size)
        rows = self._group.gather(mine + _CALL.pack(0 if back is None else back.lease.epoch, *call.words(0)))
        progress = [unpack_progress(row[: len(mine)]) for row in rows]
        if len({rank_progress.ended for rank_progress in progress}) > 1:
            return sync_lagging_ranks(progress, lease.rank, self.kept, blocks, lease.block_words, self._group)
        called = [_CALL.unpack(row[len(mine) :]) for row in rows]
        epochs = {epoch for epoch, *_ in called}
        if len(epochs) == 1 and back is not None:
            self._return_to_switch(communicator, back)
            return None
        self.collectives += 1
        refusals, _ = compare_calls([words for _, *words in called])
        if refusals:
            return CollectiveOutcome(communicator.operations, refusals, np.zeros(0, np.uint8), np.zeros((0, 0), ">i4"))
        return CollectiveOutcome(communicator.operations, {}, *sum_blocks(self._group, blocks, lease.block_words))

    def _return_to_switch(self, communicator: Communicator, epoch: EpochMembership) -> None:
        communicator.enter_epoch(epoch)
        self._away, self._return = False, None
        event(
            _log,
            logging.WARNING,
            "switch joined again",
            job=epoch.lease.name,
            rank=epoch.lease.rank,
            epoch=epoch.lease.epoch,
            operations=communicator.operations,
        )


@contextlib.contextmanager
def _logged(communicator: Communicator, call: Call) -> Iterator[None]:
    """Log once that a collective over the process group takes long; gloo does not say for which ranks it waits."""
    lease, text = (
        communicator.lease,
        "rank %d of job %s has waited %.0f s in %s for the other ranks of the process group",
    )
    timer = threading.Timer(waits.LOG_AFTER_S, _log.warning, (text, lease.rank, lease.name, waits.LOG_AFTER_S, call))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class _Return:
    """Joins the job again in the background, until it has an epoch, and again when that is void."""

    def __init__(self, communicator: Communicator, joiner: Joiner) -> None:
        self._communicator, self._joiner = communicator, joiner
        self._lock = threading.Lock()
        self._epoch: EpochMembership | None = None
        self._over = threading.Event()
        self._start()

    def epoch(self) -> EpochMembership | None:
        """Return the epoch that this rank has joined, if it has one."""
        with self._lock:
            epoch = self._epoch
            if epoch is None or epoch.membership is None or epoch.membership.failure() is None:
                return epoch
            self._epoch = None
        epoch.transport.close()
        self._start()
        return None

    def cancel(self) -> None:
        """Release the epoch, or end the attempts to join one."""
        self._over.set()
        with self._lock:
            epoch, self._epoch = self._epoch, None
        if epoch is not None:
            epoch.release()

    def _start(self) -> None:
        threading.Thread(target=self._join, name="p4reduce-return", daemon=True).start()

    def _join(self) -> None:
        while not self._over.is_set():
            epoch: EpochMembership | None = None
            try:
                epoch = self._joiner.join(_JOIN_S)
                check_same_job(self._communicator, epoch)
            except Exception as error:  # any error: no other thread would try again
                level = logging.INFO if isinstance(error, JoinError) else logging.WARNING
                _log.log(level, "not back on the switch yet: %s", error)
                if epoch is not None:
                    epoch.release()
                self._over.wait(_PAUSE_S)
                continue
            with self._lock:
                if not self._over.is_set():
                    self._epoch = epoch
                    return
            epoch.release()

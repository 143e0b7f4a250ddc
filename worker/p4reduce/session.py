"""A session: one rank's collectives, run one after the other over a transport.

The protocol engine (protocol/engine.py) turns frames and times into frames, and uplink.py gives it both. Here is whose
turn it is, the deadline, what was counted, and what ends it all.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple, Protocol, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from p4reduce.errors import (
    CollectiveError,
    CollectiveTimeoutError,
    CommunicatorClosedError,
    ForkedProcessError,
    P4ReduceError,
    PeerRefusedError,
    Reason,
)
from p4reduce.protocol.call import Call, CodecId, Kind
from p4reduce.protocol.collective import AnyCollective, load_kernels
from p4reduce.protocol.refusal import reason_of
from p4reduce.protocol.source import UNTOUCHED, BlockSource, ConcatenatedBlocks, NoBlocks, check_size
from p4reduce.stats import CollectiveReport, CollectiveStats
from p4reduce.transport import Transport
from p4reduce.turns import Turns
from p4reduce.uplink import Uplink
from p4reduce_contracts.jobs.answers import WaitingSlot
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_runtime import metrics
from p4reduce_runtime.logs import event

_log = logging.getLogger(__name__)

DEFAULT_TIMEOUT_S: Final = 1800.0
"""What torch.distributed gives a process group of gloo (`default_pg_timeout`): a rank that saves a checkpoint for some
minutes must not end the job. Long before that the log says what is waited for (waits.py), and a rank, switch or
controller that ends is a JobResetError within seconds."""
CLOSE_TIMEOUT_S: Final = 2.0
_LAST_LOOK_S: Final = 0.3
"""How long close() lets a running collective of another thread notice that it is over."""

Timeout = float | timedelta
"""Seconds, or a timedelta as in torch.distributed."""


def timeout_seconds(timeout: object, what: str = "timeout_s") -> float:
    """Return a timeout in seconds. `timeout` is a number of seconds, or a timedelta as torch.distributed takes it.

    Raises ValueError for zero, a negative time, NaN, infinity and anything else that a lock cannot wait.
    """
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    if not (isinstance(seconds, SupportsFloat) and 0 < float(seconds) <= threading.TIMEOUT_MAX):
        raise ValueError(f"{what} is {timeout}; give a time to wait in seconds")
    return float(seconds)


class Membership(Protocol):
    """This rank's standing with the controller."""

    def failure(self) -> CollectiveError | None:
        """Return why the job can no longer be used, once it can't."""
        ...

    def leave(self) -> None:
        """Give the place up; does not raise."""
        ...


class Place(NamedTuple):
    """A rank's place in an epoch of its job."""

    lease: Lease
    transport: Transport
    membership: Membership | None

    def give_up(self) -> None:
        """Let others have it."""
        self.transport.close()
        if self.membership is not None:
            self.membership.leave()


class Finished(Protocol):
    """What a collective has come to, the same on all ranks."""

    @property
    def call(self) -> Call: ...

    @property
    def refusals(self) -> Mapping[int, Reason]:
        """The ranks that could not take part, and why; with any, there is no result."""
        ...

    @property
    def agreed_exponents(self) -> NDArray[np.uint8]: ...

    @property
    def sums(self) -> NDArray[Any]:
        """[blocks, block_words]: the words as summed, of either byte order."""
        ...

    def result(self) -> list[NDArray[Any]]:
        """Return the summed tensors."""
        ...


class Comeback(Protocol):
    """How a collective is finished all the same when the job was reset under it (rejoin.py, pytorch/fallback.py)."""

    def finish(
        self, session: Session, call: Call, source: BlockSource, attempt: Callable[[], Finished], timeout_s: float
    ) -> Finished:
        """Return what `attempt` returns, or another rank's copy of that; `attempt` may be called again and again.

        `call` says what this rank calls. Raises CollectiveError when the session cannot go on.
        """
        ...

    def mends(self, error: P4ReduceError) -> bool:
        """Return whether the next collective gets over this error."""
        ...

    def cancel(self) -> None:
        """Have a `finish` on another thread end soon, since the session was closed."""
        ...


@dataclass(frozen=True)
class Contribution:
    """What this rank brings to a collective, and all that the ranks compare of it (protocol/call.py)."""

    source: BlockSource
    codec: CodecId = CodecId.NONE
    detail: int = 0
    elements: int = 0
    layout: str = ""
    expected_blocks: int | None = None
    """About how many blocks will travel, the same number on all ranks; None: as many as last time, or most of them."""
    finish: Callable[[list[NDArray[Any]]], Any] = list
    """Makes of the decoded sums what the caller gets."""


class Session:
    """What the functions in `collectives/` run on; thread-safe, one collective at a time.

    After a CollectiveError the session is broken and raises the same error again at once.
    """

    def __init__(
        self,
        lease: Lease,
        transport: Transport,
        *,
        membership: Membership | None = None,
        timeout_s: Timeout = DEFAULT_TIMEOUT_S,
        window: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        slot_rounds: Sequence[int] | None = None,
    ) -> None:
        """`timeout_s`: of collectives that name none. `window`: a fixed number of slots; None adapts it.

        `slot_rounds`: the first round of each slot of the lease; None begins at 0.
        """
        self.timeout_s = timeout_seconds(timeout_s)
        load_kernels()  # now, not while other ranks wait for this one's first frames
        self._uplink = Uplink(lease, transport, window=window, clock=clock, slot_rounds=slot_rounds)
        self.membership = membership
        self.comeback: Comeback | None = None
        """None: the first JobResetError is the session's end."""
        self.at_close: Callable[[], None] = _nothing
        """Called once at the end of `close`; does not raise."""
        self.operations = 0
        """Collectives begun; those that a reset has interrupted count again when they are repeated."""
        self.stats = CollectiveStats()
        self._last: tuple[Call, float, CollectiveStats, tuple[int, ...], int] | None = None
        """Of the last finished collective; `last` makes a report of it for those who ask."""
        self._process = os.getpid()
        self._clock = clock
        self._fixed_window = window
        self._running: AnyCollective | None = None
        self._refusal: tuple[Exception, Mapping[int, Reason]] | None = None
        """The error with which this rank refused last, and why each rank refused then."""
        self._turns = Turns()
        self._failure: P4ReduceError | None = None
        self._failing = threading.Lock()
        self._closing = threading.Lock()

    @property
    def lease(self) -> Lease:
        """This rank's place in the job's epoch."""
        return self._uplink.lease

    @property
    def transport(self) -> Transport:
        """What carries this epoch's frames."""
        return self._uplink.transport

    def waiting(self) -> WaitingSlot | None:
        """Return what the running collective waits for; None if there is none. May be called from any thread."""
        running = self._running
        return None if running is None else running.waiting(self._clock())

    def metrics(self) -> dict[str, float]:
        """Return what this rank has counted and measured, by the names in `p4reduce_runtime.metrics`."""
        measured = {
            metrics.WORKER_ROUND_TRIP: self._uplink.round_trip.smoothed_s,
            metrics.WORKER_TIMEOUT: self._uplink.round_trip.timeout_s,
            metrics.WORKER_WINDOW: self._uplink.window.slots,
        }
        return self.stats.as_metrics() | {metric.name: value for metric, value in measured.items()}

    @property
    def last(self) -> CollectiveReport | None:
        """What the last finished collective cost; None before the first."""
        last = self._last  # once: another thread's collective may end meanwhile
        return None if last is None else CollectiveReport(str(last[0]), *last[1:])

    @property
    def retransmission_timeout_s(self) -> float:
        """How long a round takes at most, by all that is known; a silence of twice that brings a probe."""
        return self._uplink.round_trip.timeout_s

    def run(self, kind: Kind, prepare: Callable[[], Contribution], *, timeout_s: Timeout | None = None) -> Any:
        """Take part in one collective, when it is this call's turn; return what the contribution's `finish` returns.

        When `prepare` raises, because this rank's data cannot be summed, the rank refuses in the place of this
        collective: that error is raised here and PeerRefusedError on the others, and all are in step for the next.
        Raises CollectiveError when the ranks are at odds, and ValueError for a `timeout_s` that is no time to wait.
        """
        self.check_process()
        try:
            wait_s = self.timeout_s if timeout_s is None else timeout_seconds(timeout_s)
            contribution = prepare()
            check_size(contribution.source)
        except Exception as error:
            self.refuse(error, timeout_s=timeout_s)
            raise
        finished = self._in_turn(kind, contribution, wait_s)
        if finished.refusals:
            raise PeerRefusedError(str(finished.call), finished.refusals)
        return contribution.finish(finished.result())

    def refuse(self, error: Exception, *, timeout_s: Timeout | None = None) -> Mapping[int, Reason]:
        """Take part in the next collective as a rank that cannot, because of `error`; return why each rank refused it.

        For an error that was told so already, nothing is sent again. Raises CollectiveError when the other ranks
        cannot be told.
        """
        self.check_process()
        if self._refusal is None or self._refusal[0] is not error:
            try:
                wait_s = self.timeout_s if timeout_s is None else timeout_seconds(timeout_s)
            except ValueError:  # which is `error`, when `run` refuses because of it
                wait_s = self.timeout_s
            try:
                finished = self._in_turn(Kind.REFUSED, Contribution(NoBlocks(), detail=reason_of(error)), wait_s)
            except P4ReduceError as failure:
                raise failure from error
            self._refusal = error, finished.refusals
        return self._refusal[1]

    def _in_turn(self, kind: Kind, contribution: Contribution, timeout_s: float) -> Finished:
        deadline = self._clock() + timeout_s

        def body(in_time: bool) -> Finished:
            self.check()
            if not in_time:
                raise CollectiveTimeoutError(
                    f"{kind.name.lower()} could not begin in {timeout_s:g} s: another collective of this process "
                    "was still running; nothing was sent"
                )
            left_s = max(round(deadline - self._clock(), 3), 1e-3)
            if self.comeback is None:
                return self._attempt(kind, contribution, left_s)
            return self.comeback.finish(
                self,
                self._call(kind, contribution, self.operations),
                contribution.source,
                lambda: self._attempt(kind, contribution, left_s),
                left_s,
            )

        return self._turns.hold(timeout_s, body)

    def _attempt(self, kind: Kind, contribution: Contribution, timeout_s: float) -> AnyCollective:
        """Take part in the next collective over the switch, in this session's turn."""
        if self.comeback is not None:
            self._check_strictly()
        alike = self._call(kind, contribution, 0)
        slots = self._uplink.window.slots_of(alike, self.lease.columns, contribution.expected_blocks)
        call = self._call(kind, contribution, self.operations, slots)
        self.operations += 1
        try:
            return self._take_part(call, contribution.source, slots, timeout_s, alike)
        except P4ReduceError:
            self.operations -= 1
            raise

    @staticmethod
    def _call(kind: Kind, contribution: Contribution, number: int, slots: int | None = None) -> Call:
        it = contribution
        layout = it.layout if slots is None else f"{it.layout}|{slots}"
        return Call(number, kind, it.codec, it.detail, it.elements, layout)

    def aside(self, kind: Kind, contribution: Contribution, number: int, timeout_s: float) -> list[NDArray[Any]]:
        """Take part in a collective that none of the callers asked for, in this session's turn; return the sums."""
        self._check_strictly()
        slots = self._uplink.window.slots
        call = self._call(kind, contribution, number, slots)
        return self._take_part(call, contribution.source, slots, timeout_s).result()

    def renew(self, place: Place) -> None:
        """Go on in another epoch of the job, in this session's turn, as if no collective had been begun in it.

        Raises CommunicatorClosedError when the session was closed meanwhile. With that or any other error the new place
        is given up.
        """
        try:
            fresh = Uplink(place.lease, place.transport, window=self._fixed_window, clock=self._clock)
        except BaseException:
            place.give_up()
            raise
        before = self._uplink
        with self._failing:
            closed = self._failure if isinstance(self._failure, CommunicatorClosedError) else None
            if closed is None:
                self._uplink, self.membership = fresh, place.membership
                self._failure = None  # last: whoever sees that there is none asks the new membership for one
        if closed is not None:
            fresh.close_channel()
            place.give_up()
            raise closed.with_traceback(None)
        before.close()

    def check_process(self) -> None:
        """Raise ForkedProcessError in a forked child: its frames would count as the parent's."""
        if os.getpid() != self._process:
            raise ForkedProcessError(
                f"this communicator is of process {self._process}, and this is process {os.getpid()}, forked from it: "
                "let the child call p4reduce.join() as a rank of its own, or leave collectives to the parent"
            )

    def check(self) -> None:
        """Raise what makes this session unusable, if anything does."""
        self.check_process()
        failure = self._lost()
        if failure is not None and not self._mends(failure):
            raise failure.with_traceback(None)

    def _check_strictly(self) -> None:
        """Raise what makes this epoch unusable, also what the comeback mends."""
        failure = self._lost()
        if failure is not None:
            raise failure.with_traceback(None)

    def _mends(self, failure: P4ReduceError | None) -> bool:
        return failure is None or self.comeback is not None and self.comeback.mends(failure)

    def close(self, *, wait: bool) -> None:
        """Leave the job: see `Communicator.close`. Raises ForkedProcessError in a forked child, whose parent stays."""
        self.check_process()
        with self._closing:
            if isinstance(self._failure, CommunicatorClosedError):
                return
            try:
                if wait and self._mends(self._failure):
                    with contextlib.suppress(P4ReduceError):
                        self.run(Kind.CLOSE, lambda: Contribution(NoBlocks()), timeout_s=CLOSE_TIMEOUT_S)
            finally:
                self.fail(CommunicatorClosedError("this communicator was closed; join the job again"))
                if self.comeback is not None:
                    self.comeback.cancel()
                if self.membership is not None:
                    self.membership.leave()
                self._turns.hold(_LAST_LOOK_S, self._close_sockets)
                self.at_close()

    def _close_sockets(self, nothing_runs: bool) -> None:
        if nothing_runs:
            self._uplink.close_channel()
        self.transport.close()

    def _lost(self) -> P4ReduceError | None:
        """Return what makes this session unusable: the first that did, or that it was closed."""
        if self._failure is None and self.membership is not None:
            lost = self.membership.failure()
            if lost is not None:
                self.fail(lost)
        return self._failure

    def fail(self, error: P4ReduceError) -> None:
        """Make this session unusable; the first error that nothing mends stays, unless this one says it was closed."""
        with self._failing:
            before = self._failure
            new = before is None or before is not error and self._mends(before)
            if new or isinstance(error, CommunicatorClosedError):
                self._failure = error
        if new and not isinstance(error, CommunicatorClosedError) and not self._mends(error):
            event(
                _log,
                logging.WARNING,
                "session failed",
                job=self.lease.name,
                rank=self.lease.rank,
                error=type(error).__name__,
                cause=str(error),
            )

    def _take_part(
        self, call: Call, source: BlockSource, slots: int, timeout_s: float, alike: Call | None = None
    ) -> AnyCollective:
        """Take part in one collective over the switch.

        `alike`: what this call has in common with later ones like it; None: nothing is remembered for them.
        """
        stats = CollectiveStats(collectives=1)
        uplink = self._uplink
        keep_words = self.comeback is not None
        collective = uplink.collective(call, source, slots, timeout_s, stats, keep_words=keep_words)
        begun = self._clock()
        self._running = collective
        try:
            uplink.drive(collective, begun, self._lost)
        except BaseException as error:
            self._break(error, call)
            raise
        finally:
            self._running = None
            self.stats.add(stats)
        limited = slots < uplink.window.slots or bool(collective.refusals)
        uplink.window.finished(collective.next_window, stats, limited=limited)
        if collective.refusals:
            refusing = ",".join(str(rank) for rank in sorted(collective.refusals))
            event(
                _log,
                logging.INFO,
                "collective refused",
                job=self.lease.name,
                rank=self.lease.rank,
                call=str(collective.call),
                by_ranks=refusing,
            )
            return collective
        union_blocks = _union_blocks(source, collective)
        if alike is not None:
            uplink.window.saw(alike, sum(union_blocks), source.n_blocks)
        uplink.try_runs(collective)
        self._last = call, self._clock() - begun, stats, union_blocks, collective.slots
        return collective

    def _break(self, error: BaseException, call: Call) -> None:
        """A collective that stopped half-way leaves the ranks at odds: let no other follow."""
        if isinstance(error, P4ReduceError):
            self.fail(error)
        else:
            self.fail(CollectiveError(f"{call} was interrupted by {type(error).__name__}; join again"))


def _nothing() -> None:
    pass


def _union_blocks(source: BlockSource, collective: AnyCollective) -> tuple[int, ...]:
    """Return how many blocks at least one rank held, of each segment."""
    held = collective.agreed_exponents != UNTOUCHED
    if not isinstance(source, ConcatenatedBlocks):
        return (int(np.count_nonzero(held)),)
    spans = zip(source.starts[:-1], source.starts[1:], strict=True)
    return tuple(int(np.count_nonzero(held[start:end])) for start, end in spans)

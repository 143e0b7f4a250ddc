"""The communicator: one member of a job, and the collectives it can take part in."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs import Segment
from p4reduce.collectives.all_gather import all_gather, all_gather_bytes
from p4reduce.collectives.all_reduce import all_reduce, all_reduce_segments
from p4reduce.collectives.barrier import barrier
from p4reduce.collectives.broadcast import broadcast
from p4reduce.errors import CollectiveError, CollectiveTimeout, CommunicatorClosed, InvalidTensor, P4ReduceError
from p4reduce.protocol.call import Call, CodecId, Kind
from p4reduce.protocol.engine import Collective
from p4reduce.protocol.rtt import RoundTrip
from p4reduce.protocol.source import UNTOUCHED, BlockSource, NoBlocks, Segments
from p4reduce.protocol.window import Window, slots_for
from p4reduce.stats import Report, Stats
from p4reduce.transport import Transport
from p4reduce.turns import Turns
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire import ENCAP_BYTES

DEFAULT_TIMEOUT_S: Final = 60.0
CLOSE_TIMEOUT_S: Final = 2.0
_LONGEST_WAIT_S: Final = 0.1
"""How often a running collective looks whether the job was reset."""
_LAST_LOOK_S: Final = 0.3
"""How long close() lets a running collective of another thread notice that it is over."""


class Membership(Protocol):
    """This rank's standing with the controller."""

    def failure(self) -> CollectiveError | None:
        """Why the job can no longer be used, once it can't."""
        ...

    def leave(self) -> None:
        """Give the place up; does not raise."""
        ...


class Communicator:
    """One rank of a job. Made by `p4reduce.join`; thread-safe, one collective at a time.

    All ranks have to call the same collectives in the same order. After a CollectiveError the
    communicator is broken and raises the same error again at once: close it and join again.
    """

    def __init__(
        self,
        lease: Lease,
        transport: Transport,
        *,
        membership: Membership | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        window: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        slot_rounds: Sequence[int] | None = None,
    ) -> None:
        self.lease = lease
        self.stats = Stats()
        self.last: Report | None = None
        """What the last finished collective cost."""
        self._transport = transport
        self._membership = membership
        self._timeout_s = timeout_s
        self._clock = clock
        self._rounds = list(slot_rounds or [0] * lease.slot_count)
        self._round_trip = RoundTrip()
        self._window = Window(lease.slot_count, window)
        self._operations = 0
        self._turns = Turns()
        self._failure: P4ReduceError | None = None
        self._failing = threading.Lock()
        self._closing = threading.Lock()

    @property
    def rank(self) -> int:
        return self.lease.rank

    @property
    def world_size(self) -> int:
        return self.lease.world_size

    def all_reduce(
        self, array: Any, *, dense: bool = False, timeout_s: float | None = None, name: str | None = None
    ) -> Any:
        """The sum over all ranks of a float32 or int32 tensor; the same bits on every rank.

        Blocks of zeros do not travel, unless `dense` (then the walk is straight, a little cheaper
        when few blocks are zero). `name` appears in errors. Raises InvalidTensor before anything is
        sent, CollectiveError once the ranks are at odds.

        `timeout_s` bounds the whole call. A float32 sum beyond the type's range is an infinity, without
        an error, and an int32 sum wraps, as numpy's additions do.
        """
        return all_reduce(self, array, dense=dense, timeout_s=timeout_s, name=name)

    def all_reduce_segments(
        self,
        segments: Sequence[Segment],
        *,
        dense: bool = False,
        expected_blocks: int | None = None,
        timeout_s: float | None = None,
        name: str | None = None,
    ) -> list[Any]:
        """The sums of several tensors, each with its own codec, in one collective.

        `expected_blocks` is about how many blocks will travel, the same number on all ranks: a collective
        expected to be short then opens few slots. Default: most of them.
        """
        return all_reduce_segments(
            self, segments, dense=dense, expected_blocks=expected_blocks, timeout_s=timeout_s, name=name
        )

    def broadcast(self, array: Any, root: int = 0, *, timeout_s: float | None = None) -> Any:
        """The root's tensor, bit for bit. The others give one of the same shape and type."""
        return broadcast(self, array, root, timeout_s=timeout_s)

    def all_gather(self, array: Any, *, timeout_s: float | None = None) -> Any:
        """Every rank's tensor, bit for bit, stacked to [world_size, ...]; equal shapes."""
        return all_gather(self, array, timeout_s=timeout_s)

    def all_gather_bytes(self, data: bytes, *, timeout_s: float | None = None) -> list[bytes]:
        """Every rank's bytes, of any length, by rank."""
        return all_gather_bytes(self, data, timeout_s=timeout_s)

    def barrier(self, *, timeout_s: float | None = None) -> None:
        """Return once every rank has called it."""
        barrier(self, timeout_s=timeout_s)

    def check(self) -> None:
        """Raise what makes this communicator unusable, if anything does."""
        failure = self._lost()
        if failure is not None:
            raise failure.with_traceback(None)

    def _lost(self) -> P4ReduceError | None:
        """What makes this communicator unusable: the first that did, or that it was closed."""
        if self._failure is None and self._membership is not None:
            lost = self._membership.failure()
            if lost is not None:
                self._fail(lost)
        return self._failure

    def _fail(self, error: P4ReduceError) -> None:
        with self._failing:
            if self._failure is None or isinstance(error, CommunicatorClosed):
                self._failure = error

    def run(
        self,
        kind: Kind,
        source: BlockSource,
        *,
        codec: CodecId = CodecId.NONE,
        detail: int = 0,
        elements: int = 0,
        layout: str = "",
        expected_blocks: int | None = None,
        timeout_s: float | None = None,
    ) -> list[NDArray[Any]]:
        """Take part in one collective: what the functions in `collectives/` are made of."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        if timeout_s <= 0:
            raise ValueError(f"timeout_s is {timeout_s:g}; give a time to wait in seconds")
        deadline = self._clock() + timeout_s

        def body(in_time: bool) -> Collective:
            self.check()
            if not in_time:
                raise CollectiveTimeout(
                    f"{kind.name.lower()} could not begin in {timeout_s:g} s: another collective of this process "
                    "was still running; nothing was sent"
                )
            slots = self._window.slots
            if expected_blocks is not None:
                slots = min(slots, slots_for(expected_blocks, self.lease.columns))
            call = Call(self._operations, kind, codec, detail, elements, f"{layout}|{slots}")
            return self._take_part(call, source, slots, max(round(deadline - self._clock(), 3), 1e-3))

        return self._turns.hold(timeout_s, body).result()

    def _take_part(self, call: Call, source: BlockSource, slots: int, timeout_s: float) -> Collective:
        stats = Stats(collectives=1)
        collective = Collective(
            self.lease,
            self._rounds,
            source,
            call,
            timeout_s,
            round_trip=self._round_trip,
            window=slots,
            proposal=self._window.proposal,
            stats=stats,
        )
        self._operations += 1
        begun = self._clock()
        try:
            self._drive(collective, begun)
        except InvalidTensor:
            raise
        except BaseException as error:
            self._break(error, call)
            raise
        finally:
            self.stats.add(stats)
        self._window.finished(collective.next_window, stats, limited=slots < self._window.slots)
        self.last = Report(str(call), self._clock() - begun, stats, _union_blocks(source, collective), collective.slots)
        return collective

    def _drive(self, collective: Collective, now: float) -> None:
        clock, receive = self._clock, self._transport.receive
        self._send(collective.start(now), collective.stats)
        while (timer := collective.next_timer) is not None:
            lost = self._lost()
            frames = receive(0.0 if lost is not None else min(max(0.0, timer - now), _LONGEST_WAIT_S))
            now = clock()
            if frames:
                collective.stats.frames_down += len(frames)
                collective.stats.bytes_down += sum(map(len, frames)) + ENCAP_BYTES * len(frames)
                answers = collective.receive_burst(frames, now)
                if lost is None:
                    self._send(answers, collective.stats)
            elif lost is not None:  # but not before all that had arrived: the sum may be complete with it
                raise lost.with_traceback(None)
            if now >= timer and lost is None:
                self._send(collective.on_timer(now), collective.stats)

    def _send(self, frames: list[bytes], stats: Stats) -> None:
        if frames:
            stats.frames_up += len(frames)
            stats.bytes_up += sum(map(len, frames)) + ENCAP_BYTES * len(frames)
            self._transport.send(frames)

    def _break(self, error: BaseException, call: Call) -> None:
        """A collective that stopped half-way leaves the ranks at odds: no other may follow."""
        if isinstance(error, P4ReduceError):
            self._fail(error)
        else:
            self._fail(CollectiveError(f"{call} was interrupted by {type(error).__name__}; join again"))

    def close(self, *, wait: bool = True) -> None:
        """Leave the job; idempotent.

        With `wait`, meet the other ranks once more first (for at most 2 s), so that none of them
        loses the answer to its last collective; a rank that calls something else meanwhile is told so.
        A collective that another thread is in gets these 2 s too, and then CommunicatorClosed; without
        `wait` it gets that at once.
        """
        with self._closing:
            if isinstance(self._failure, CommunicatorClosed):
                return
            try:
                if wait and self._failure is None:
                    with contextlib.suppress(P4ReduceError):
                        self.run(Kind.CLOSE, NoBlocks(), timeout_s=CLOSE_TIMEOUT_S)
            finally:
                self._fail(CommunicatorClosed("this communicator was closed; join the job again"))
                if self._membership is not None:
                    self._membership.leave()
                self._turns.hold(_LAST_LOOK_S, lambda in_time: self._transport.close())

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(wait=kind is None)


def _union_blocks(source: BlockSource, collective: Collective) -> tuple[int, ...]:
    held = collective.agreed_exponents != UNTOUCHED
    if not isinstance(source, Segments):
        return (int(np.count_nonzero(held)),)
    spans = zip(source.starts[:-1], source.starts[1:], strict=True)
    return tuple(int(np.count_nonzero(held[a:b])) for a, b in spans)

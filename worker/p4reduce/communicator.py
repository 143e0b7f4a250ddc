"""The communicator: one rank of a job, and the collectives it takes part in.

It chooses the path of each (paths/), keeps their order (collective_queue.py) and counts them; what a rank contributes
to each is in collectives.py, and what ends a communicator in failure.py.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from p4reduce import collectives
from p4reduce.codecs import Segment
from p4reduce.codecs.arrays import Tensor, is_torch, plain_array
from p4reduce.codecs.formats import Bits
from p4reduce.collective_queue import CallersTurn, CollectiveFuture, CollectiveQueue
from p4reduce.collectives import Contribution, Plans
from p4reduce.epoch import Membership
from p4reduce.errors import CollectiveError, CommunicatorClosedError, P4ReduceError, PeerRefusedError, Reason
from p4reduce.failure import Failure
from p4reduce.paths.hosts.find import Hosts
from p4reduce.paths.hosts.memory_path import MemoryPath
from p4reduce.paths.hosts.path import HostsPath
from p4reduce.paths.hosts.sums import HostSums
from p4reduce.paths.path import FinishedCollective, Path, log_refused
from p4reduce.paths.switch import SwitchPath
from p4reduce.protocol.blocks import Array, Blocks
from p4reduce.protocol.deadline import Deadline
from p4reduce.protocol.refusal import reason_of
from p4reduce.stats import DENSE_BYTES, CollectiveStats
from p4reduce.timeouts import DEFAULT_TIMEOUT_S, Timeout, timeout_seconds
from p4reduce.transport import Transport
from p4reduce_contracts.jobs.answers import WaitingSlot
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_contracts.wire.calls import CodecId, Kind
from p4reduce_runtime import kernels, metrics

SomeTensor = TypeVar("SomeTensor", bound=Tensor)
T = TypeVar("T")

CLOSE_TIMEOUT_S: Final = 2.0
_INTERRUPT_S: Final = 0.3
"""Seconds that close() waits for a running collective of another thread to end, once it is interrupted."""


class Communicator:
    """One rank of a job. Made by `p4reduce.join`; thread-safe, one collective at a time.

    All ranks have to call the same collectives in the same order. After a CollectiveError the
    communicator is broken and raises the same error again at once: close it and join again. With `join(rejoin=True)`
    a JobResetError is none as long as all ranks can join again: the collective is finished in the job's next epoch.

    A rank whose data cannot be summed raises InvalidTensorError, and the others raise PeerRefusedError in the same
    collective; that needs the other ranks, so it may last as long as the collective would. The communicator stays
    usable.

    A forked child cannot use it, nor close it: ForkedProcessError.
    """

    def __init__(
        self,
        lease: Lease,
        transport: Transport | None,
        *,
        hosts: Hosts | None = None,
        membership: Membership | None = None,
        timeout_s: Timeout = DEFAULT_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take part under `lease`, over `transport`; None: all ranks are on the one host of `hosts`.

        `timeout_s`: limit of collectives called without one.
        """
        self.timeout_s = timeout_seconds(timeout_s)
        kernels.preload("p4reduce.protocol.kernels")  # now, not while other ranks wait for this one's first frames
        self.hosts = hosts
        """The ranks of this host, which add in its memory; None: each rank sends for itself."""
        self.failure = Failure(lease, membership)
        """The error that ends this communicator, and the membership that may end."""
        self._running = False
        self.at_close: list[Callable[[Communicator], None]] = []
        """The functions that are called once at the end of `close`; they do not raise."""
        self.operations = 0
        """Number of collectives begun; those that a reset has interrupted count again when they are repeated."""
        self.stats = CollectiveStats()
        """Counts of what all collectives so far have sent, received and repeated."""
        self.path: Path
        """The path of all ranks in the present epoch."""
        if transport is None:
            assert hosts is not None and hosts.sums is not None
            self.path = MemoryPath(lease, hosts.sums, self.stats, clock)
        else:
            self.path = SwitchPath(lease, transport, total=self.stats, clock=clock)
        self.collective_s = 0.0
        """Seconds spent in these collectives."""
        self.count_over_gloo: Callable[[], int] = int
        """A function that returns how many collectives went over gloo; a process group sets it."""
        self.underflows = 0
        """Number of sums that were refused because numbers would have become 0."""
        self._clock = clock
        self._refusal: tuple[Exception, Mapping[int, Reason]] | None = None
        """The error with which this rank refused last, and why each rank refused then."""
        self._plans = Plans()
        self.queue = CollectiveQueue()
        """The order of its collectives. A process group gives it its own, before the first one."""

    # ---- what is known of the job

    @property
    def lease(self) -> Lease:
        """The lease that the controller granted for the present epoch."""
        return self.path.lease

    @property
    def over_switch(self) -> SwitchPath:
        """The path over the switch in the present epoch, for what there is only there."""
        assert isinstance(self.path, SwitchPath), "the ranks are on one host, without a switch"
        return self.path

    @property
    def rank(self) -> int:
        return self.lease.rank

    @property
    def world_size(self) -> int:
        return self.lease.world_size

    def metrics(self) -> dict[str, float]:
        """Return what this rank counts and measures, by the names in `p4reduce_runtime.metrics`.

        They have no labels: add the job and the rank where you pass them on.
        """
        shared = {metrics.WORKER_SHARED_MEMORY.name: 0 if self.hosts is None else self.hosts.shared_bytes}
        return self.stats.as_metrics() | self.path.metrics() | shared

    def waiting(self) -> WaitingSlot | None:
        """Return what the running collective waits for; None if there is none. May be called from any thread."""
        return self.path.waiting()

    # ---- collectives

    def empty(self, shape: int | Sequence[int], dtype: Any = np.float32, *, timeout_s: Timeout | None = None) -> Array:
        """Return an array, not initialized, of memory that the ranks of this host share, else of ordinary memory.

        A sum of such an array, unless it is small, is not copied there first; where all ranks are on one host and give
        it as `out` too, nor back. All ranks call it, with equal arguments. When the array is gone, another one gets its
        memory. What a forked child writes is its own. A job with `rejoin` has none.
        """
        try:
            wait_s = self.timeout_s if timeout_s is None else timeout_seconds(timeout_s)
            plain = collectives.new_array(shape, dtype)
        except Exception as error:
            self.refuse(error, timeout_s=timeout_s)
            raise
        return self.queue.run("empty", wait_s, self._allocate, plain, self._deadline(wait_s))

    def _allocate(self, plain: Array, deadline: Deadline) -> Array:
        """Return an array as `empty` does, in one turn: the ranks may find their hosts in it."""
        detail = f"{plain.dtype.str}{plain.shape}"
        self.compare("empty", 1, plain.size, detail, timeout_s=deadline.left_s(self._clock()))
        hosts = self.find_hosts(deadline.left_s(self._clock()))
        found = None if hosts is None else hosts.empty(plain.nbytes)
        return plain if found is None else found.view(plain.dtype).reshape(plain.shape)

    def all_reduce(
        self,
        array: SomeTensor,
        *,
        out: SomeTensor | None = None,
        bits: Bits | None = None,
        refuse_underflow: bool = False,
        timeout_s: Timeout | None = None,
    ) -> SomeTensor:
        """Return the sum over all ranks of a float32, float16, bfloat16 or int32 tensor; the same bits on every rank.

        Blocks of zeros are not sent. Raises InvalidTensorError for data that cannot be summed, PeerRefusedError for
        another rank's, and CollectiveError when a rank, the switch or the controller fails or the ranks' calls differ.

        With `out`, a tensor like `array` or `array` itself, the sum is written there, and `out` is returned. With
        contiguous float32 on the CPU that saves the memory of another tensor, and time, unless the job was joined with
        `rejoin`. After any error, also PeerRefusedError, `out` may hold the sums of some blocks.

        `bits`, equal on all ranks: of a number on the way, 32, 16 or 8 (docs/compressors.md has the errors). Default:
        32 for float32, 16 for float16 and bfloat16.

        `refuse_underflow`: raise UnderflowError where more than 1 in 1,000 of the numbers of a float32 tensor that are
        not 0 would become 0 beside much larger ones.

        A tensor of more than 128 MB takes several collectives; `refuse_underflow` is then of each piece.

        `timeout_s`, in seconds or as a timedelta, bounds the whole call. A sum beyond the type's range is an infinity,
        without an error, and an int32 sum wraps, as numpy's additions do.
        """
        if collectives.takes_several(array, out):
            return self._all_reduce_in_pieces(array, out, timeout_s, bits=bits, refuse_underflow=refuse_underflow)
        how = self._plans, self.path.lease, array, out, bits, refuse_underflow
        total: SomeTensor = self._run(timeout_s, collectives.all_reduce, *how)
        return total

    def _all_reduce_in_pieces(
        self, array: SomeTensor, out: SomeTensor | None, timeout_s: Timeout | None, **how: Any
    ) -> SomeTensor:
        """Do as `all_reduce`, in a collective for each piece of the tensor."""
        until = self._clock() + (self.timeout_s if timeout_s is None else timeout_seconds(timeout_s))
        total: Any = out
        if out is None or plain_array(out) is None:
            total = array.new_empty(array.shape) if is_torch(array) else np.empty(array.shape, array.dtype)
        rows, sums, most = array.reshape(-1), total.reshape(-1), collectives.MOST_BYTES // array.itemsize
        for begin in range(0, len(rows), most):
            left_s, piece = max(1e-3, until - self._clock()), slice(begin, begin + most)
            self.all_reduce(rows[piece], out=sums[piece], timeout_s=left_s, **how)
        if out is not None and out is not total:
            out[...] = total
        found: SomeTensor = total if out is None else out
        return found

    def all_reduce_segments(
        self,
        segments: Sequence[Segment],
        *,
        dense: bool = False,
        timeout_s: Timeout | None = None,
        name: str | None = None,
        agreement: str = "",
    ) -> list[Any]:
        """Return the sums of several tensors, each with its own codec, from one collective.

        `agreement`: what else must be equal on all ranks, and may differ from call to call. A call opens as many slots
        as the last one of the same name and layout needed; the first one with a name opens one.
        """
        how = self._plans, self.lease, segments, dense, name, agreement
        sums: list[Any] = self._run(timeout_s, collectives.all_reduce_segments, *how)
        return sums

    def broadcast(self, array: SomeTensor, root: int = 0, *, timeout_s: Timeout | None = None) -> SomeTensor:
        """Return the root's tensor, bit for bit. The others give one of the same shape and type."""
        tensor: SomeTensor = self._run(timeout_s, collectives.broadcast, self.lease, array, root)
        return tensor

    def all_gather(self, array: SomeTensor, *, timeout_s: Timeout | None = None) -> SomeTensor:
        """Return every rank's tensor, bit for bit, stacked to [world_size, ...]; equal shapes."""
        tensors: SomeTensor = self._run(timeout_s, collectives.all_gather, self.lease, array)
        return tensors

    def all_gather_bytes(self, data: bytes, *, timeout_s: Timeout | None = None) -> list[bytes]:
        """Return every rank's bytes, of any length, by rank. Two collectives: the lengths, then the bytes."""
        lengths: list[int] = self._run(timeout_s, collectives.all_gather_length, self.lease, data)
        rows: list[bytes] = self._run(timeout_s, collectives.all_gather_bytes, self.lease, data, lengths)
        return rows

    def barrier(self, *, timeout_s: Timeout | None = None) -> None:
        """Return once every rank has called it."""
        self._run(timeout_s, collectives.no_blocks, Kind.BARRIER)

    def compare(
        self, name: str, count: int, elements: int, agreement: str, *, timeout_s: Timeout | None = None
    ) -> None:
        """Return once every rank has called it, all with the same arguments; they are as those of a sum of segments."""
        layout = (CodecId.SEGMENTS, count & 0xFF, elements, name, agreement)
        self._run(timeout_s, partial(Contribution, single=False), Kind.ALL_REDUCE, Blocks(), *layout)

    def refuse(self, error: Exception, *, timeout_s: Timeout | None = None) -> Mapping[int, Reason]:
        """Tell the other ranks, in the place of the next collective, that this rank cannot take part in it.

        For an error that is found before the collective is called: they raise PeerRefusedError there instead of waiting
        for this rank, and all ranks can go on with the next one. What a collective itself raised is not sent again.
        Returns why each rank refused, by rank. Raises CollectiveError when the other ranks call another collective or
        none.
        """
        self.check_process()
        if self._refusal is None or self._refusal[0] is not error:
            try:
                wait_s = self.timeout_s if timeout_s is None else timeout_seconds(timeout_s)
            except ValueError:  # when `_run` refuses because of it
                wait_s = self.timeout_s
            try:
                self._run(wait_s, collectives.no_blocks, Kind.REFUSED, reason_of(error))
            except PeerRefusedError as refused:
                self._refusal = error, refused.reasons
            except P4ReduceError as failure:
                raise failure from error
        assert self._refusal is not None
        return self._refusal[1]

    def submit(self, call: Callable[[], T]) -> CollectiveFuture[T]:
        """Have `call`, which may call collectives, made on another thread when all collectives before it have ended.

            future = comm.submit(lambda: comm.all_reduce(gradient, out=gradient))
            ...
            future.result()

        Collectives of one communicator come in the order in which they, or what calls them, were submitted. The time of
        a collective within `call` begins there. `future.result()` returns what `call` returned, or raises its error.
        """
        return self.queue.submit(call)

    def _run(self, timeout_s: Timeout | None, prepare: Callable[..., Contribution], *arguments: Any) -> Any:
        """Take part in one collective, in the order of the calls; return what the contribution's `finish` returns."""
        try:
            if timeout_s is None:
                wait_s = self.timeout_s
            else:
                wait_s = timeout_s if type(timeout_s) is float and 0 < timeout_s < 1e6 else timeout_seconds(timeout_s)
            contribution = prepare(*arguments)
        except Exception as error:
            self.refuse(error, timeout_s=timeout_s)
            raise
        deadline, recovery = Deadline(self._clock() + wait_s, wait_s), self.failure.recovery
        with CallersTurn(self.queue, contribution.kind_name, wait_s):
            if recovery is None:
                finished = self.take_part(contribution, deadline)
            else:
                finished = recovery.finish(self, contribution, deadline)
        if finished.refusals:
            raise PeerRefusedError(str(finished.call), finished.refusals)
        results = finished.result()
        self._plans.give_back(contribution)
        return results[0] if contribution.single else results

    def take_part(self, contribution: Contribution, deadline: Deadline) -> FinishedCollective:
        """Take part in one collective, in this call's turn, and count it."""
        failure, path, hosts = self.failure, self.path, self.hosts
        if failure.error is not None or failure.membership is not None:
            failure.check()
        if self._running:
            self.check_alone()
        contribution.number = self.operations
        if hosts is not None and 4 * contribution.blocks.n_blocks * path.lease.block_words < path.least_host_bytes:
            hosts = None
        self._running = True
        self.operations += 1
        begun = self._clock()
        try:
            if hosts is None or path.in_memory:
                finished: FinishedCollective = path.run(contribution, deadline, failure.lost)
            else:
                finished = HostsPath(hosts, self.over_switch).run(contribution, deadline, failure.lost)
        except BaseException as error:
            call = contribution.call(limit_s=deadline.limit_s)
            failure.fail_of(error, str(call), None if hosts is None else hosts.set_failed)
            if isinstance(error, P4ReduceError):
                self.operations -= 1
            raise
        finally:
            self._running = False
            self.collective_s += self._clock() - begun
            if not path.in_memory:
                self.over_switch.probe_gso()
        self.stats.counts[DENSE_BYTES] += contribution.dense_bytes
        if finished.refusals:
            log_refused(self.lease, finished)
        return finished

    def _deadline(self, wait_s: float) -> Deadline:
        return Deadline(self._clock() + wait_s, wait_s)

    # ---- for what takes part by itself: compressors over hosts, the joining of a new epoch

    def check_alone(self) -> None:
        """Raise CollectiveError in a call within a collective of the same thread."""
        if self._running:
            raise CollectiveError(
                "a collective was called within another one, as by a signal's handler; it was not sent"
            )

    def find_hosts(self, timeout_s: float | None = None, size: int | None = None) -> HostSums | None:
        """Return what adds over the hosts of this job, None where each rank sends for itself; all ranks call it.

        `size`: bytes that are to be added, equal on all ranks; None for few bytes too. The first call finds the hosts.
        Raises CollectiveError, and PeerRefusedError where a rank refused meanwhile.
        """
        hosts, small = self.hosts, size is not None and size < self.path.least_host_bytes
        if hosts is None or small or self.failure.recovery is not None:
            return None
        if not hosts.searched and isinstance(self.path, SwitchPath):
            wait_s = self.timeout_s if timeout_s is None else timeout_s
            self.queue.run("find_hosts", wait_s, self._search, HostsPath(hosts, self.path), self._deadline(wait_s))
        return hosts.sums

    def _search(self, path: HostsPath, deadline: Deadline) -> None:
        self.failure.check()
        barrier = replace(collectives.no_blocks(Kind.BARRIER), number=self.operations)
        refused = self.guard("the search for hosts", path.find, barrier, deadline, self.failure.lost)
        if refused is not None:
            self.operations += 1
            raise PeerRefusedError(str(refused.call), refused.refusals)

    def guard(self, what: str, work: Callable[..., T], *arguments: Any) -> T:
        """Return what `work` returns, in this call's turn. An error ends the communicator."""
        self._running = True
        try:
            return work(*arguments)
        except BaseException as error:
            self.failure.fail_of(error, what, None if self.hosts is None else self.hosts.set_failed)
            raise
        finally:
            self._running = False

    # ---- the end

    def check(self) -> None:
        """Raise what makes this communicator unusable, if anything does."""
        self.check_process()
        self.failure.check_final()

    def check_process(self) -> None:
        """Raise ForkedProcessError in a forked child: its frames would count as the parent's."""
        self.queue.check_process()

    def close(self, *, wait: bool = True) -> None:
        """Leave the job; idempotent.

        With `wait`, take part in one more collective first (for at most 2 s), so that no other rank loses the answer to
        its last one; a rank that calls another collective meanwhile gets CollectiveMismatchError.
        A collective that another thread is in gets these 2 s too, and then CommunicatorClosedError; without
        `wait` it gets that at once.
        """
        self.check_process()
        failure = self.failure
        with failure.closing:
            before = failure.error
            if isinstance(before, CommunicatorClosedError):
                return
            finished = False
            try:
                if wait and (before is None or failure.recovers(before)):
                    with contextlib.suppress(P4ReduceError):
                        self._run(CLOSE_TIMEOUT_S, collectives.no_blocks, Kind.CLOSE)
                        finished = True
            finally:
                failure.leave(finished=finished)
                self.path.close(idle=self.queue.drain(_INTERRUPT_S), finished=finished)
                if self.hosts is not None:
                    self.hosts.close(finished=finished)
                for call in self.at_close:
                    call(self)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *error: object) -> None:
        self.close(wait=error[0] is None)

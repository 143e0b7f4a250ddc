"""The communicator: one member of a job, and the collectives it can take part in."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from p4reduce.codecs import Segment
from p4reduce.collectives.all_gather import all_gather, all_gather_bytes
from p4reduce.collectives.all_reduce import all_reduce, all_reduce_segments
from p4reduce.collectives.barrier import barrier
from p4reduce.collectives.broadcast import broadcast
from p4reduce.errors import Reason
from p4reduce.session import DEFAULT_TIMEOUT_S, Membership, Session, Timeout
from p4reduce.stats import CollectiveReport, CollectiveStats
from p4reduce.transport import Transport
from p4reduce_contracts.jobs.lease import Lease


class Communicator:
    """One rank of a job. Made by `p4reduce.join`; thread-safe, one collective at a time.

    All ranks have to call the same collectives in the same order. After a CollectiveError the
    communicator is broken and raises the same error again at once: close it and join again. With `join(rejoin=True)`
    a JobResetError is none as long as all ranks can join again: the collective is finished in the job's next epoch.

    A rank whose data cannot be summed raises InvalidTensorError, and the others raise PeerRefusedError in the same
    collective; that takes the other ranks, so it may last as long as the collective would. The communicator stays
    usable.

    A forked child cannot use it, nor close it: ForkedProcessError.
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
        """Take part as the lease says, over `transport`; the other arguments are those of `Session`."""
        self.session = Session(
            lease,
            transport,
            membership=membership,
            timeout_s=timeout_s,
            window=window,
            clock=clock,
            slot_rounds=slot_rounds,
        )
        """Runs the collectives; for a collective of your own."""

    @property
    def lease(self) -> Lease:
        """What the controller granted for the present epoch."""
        return self.session.lease

    @property
    def rank(self) -> int:
        return self.lease.rank

    @property
    def world_size(self) -> int:
        return self.lease.world_size

    @property
    def stats(self) -> CollectiveStats:
        """What all collectives so far have sent, received and repeated."""
        return self.session.stats

    def metrics(self) -> dict[str, float]:
        """Return what this rank counts and measures, by the names in `p4reduce_runtime.metrics`.

        They have no labels: add the job and the rank where you pass them on.
        """
        return self.session.metrics()

    @property
    def last(self) -> CollectiveReport | None:
        """What the last finished collective was and cost."""
        return self.session.last

    def all_reduce(
        self,
        array: Any,
        *,
        out: Any = None,
        dense: bool = False,
        timeout_s: Timeout | None = None,
        name: str | None = None,
    ) -> Any:
        """Return the sum over all ranks of a float32 or int32 tensor; the same bits on every rank.

        Blocks of zeros do not travel, unless `dense` (then the walk is straight, a little cheaper
        when few blocks are zero). `name` appears in errors. Raises InvalidTensorError for data that cannot be
        summed, PeerRefusedError for another rank's, CollectiveError once the ranks are at odds.

        With `out`, a tensor like `array` or `array` itself, the sum is written there, and it is what is returned. Of
        contiguous float32 on the CPU that saves the memory of another tensor, and time, unless the job was joined with
        `rejoin`. After any error, also PeerRefusedError, `out` may hold the sums of some blocks.

        `timeout_s`, in seconds or as a timedelta, bounds the whole call. A float32 sum beyond the type's range is an
        infinity, without an error, and an int32 sum wraps, as numpy's additions do.
        """
        return all_reduce(self.session, array, out=out, dense=dense, timeout_s=timeout_s, name=name)

    def all_reduce_segments(
        self,
        segments: Sequence[Segment],
        *,
        dense: bool = False,
        expected_blocks: int | None = None,
        timeout_s: Timeout | None = None,
        name: str | None = None,
    ) -> list[Any]:
        """Return the sums of several tensors, each with its own codec, from one collective.

        `expected_blocks` is about how many blocks will travel, the same number on all ranks: a collective
        expected to be short then opens few slots. Default: as many as the last call alike needed.
        """
        return all_reduce_segments(
            self.session, segments, dense=dense, expected_blocks=expected_blocks, timeout_s=timeout_s, name=name
        )

    def broadcast(self, array: Any, root: int = 0, *, timeout_s: Timeout | None = None) -> Any:
        """Return the root's tensor, bit for bit. The others give one of the same shape and type."""
        return broadcast(self.session, array, root, timeout_s=timeout_s)

    def all_gather(self, array: Any, *, timeout_s: Timeout | None = None) -> Any:
        """Return every rank's tensor, bit for bit, stacked to [world_size, ...]; equal shapes."""
        return all_gather(self.session, array, timeout_s=timeout_s)

    def all_gather_bytes(self, data: bytes, *, timeout_s: Timeout | None = None) -> list[bytes]:
        """Return every rank's bytes, of any length, by rank."""
        return all_gather_bytes(self.session, data, timeout_s=timeout_s)

    def refuse(self, error: Exception, *, timeout_s: Timeout | None = None) -> Mapping[int, Reason]:
        """Tell the other ranks, in the place of the next collective, that this rank cannot take part in it.

        For an error that comes up before the collective is called: they raise PeerRefusedError there instead of waiting
        for this rank, and all are in step for the next one. What a collective raises itself has been told already
        and is not told twice. Returns why each rank refused, by rank. Raises CollectiveError when the other ranks
        call something else or do not come.
        """
        return self.session.refuse(error, timeout_s=timeout_s)

    def barrier(self, *, timeout_s: Timeout | None = None) -> None:
        """Return once every rank has called it."""
        barrier(self.session, timeout_s=timeout_s)

    def check(self) -> None:
        """Raise what makes this communicator unusable, if anything does."""
        self.session.check()

    def close(self, *, wait: bool = True) -> None:
        """Leave the job; idempotent.

        With `wait`, meet the other ranks once more first (for at most 2 s), so that none of them
        loses the answer to its last collective; a rank that calls something else meanwhile is told so.
        A collective that another thread is in gets these 2 s too, and then CommunicatorClosedError; without
        `wait` it gets that at once.
        """
        self.session.close(wait=wait)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(wait=error_type is None)

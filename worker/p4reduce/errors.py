"""Everything p4reduce raises on purpose.

P4ReduceError
├── JoinError                     joining a job failed; the message says what to change
│   └── GeometryMismatchError     this worker does not support the switch's frame shape
├── CollectiveError               a collective failed; the communicator cannot be used any more
│   ├── CollectiveTimeoutError    the deadline passed; names the ranks that are missing
│   ├── CollectiveMismatchError   the ranks called different collectives; says what each called
│   ├── CorruptSumError           the switch's sum is not that of the ranks' data; no part of it was returned
│   └── JobResetError             the controller ended this epoch of the job; join again
│       ├── ControllerLostError   no heartbeat was answered for the lease's dead time
│       └── HostLostError         a rank of this host has ended, or the job of a shard was reset
├── PeerRefusedError              another rank cannot take part in this collective; all go on with the next
├── CommunicatorClosedError       a collective was called after close()
├── ForkedProcessError            a forked child used its parent's communicator
├── InvalidTensorError            the data cannot be summed (type, size, ...); the other ranks get PeerRefusedError
│   ├── NotFiniteError            it holds a NaN or an infinity
│   ├── UnderflowError            too many of its numbers would become 0 in fixed point
│   └── LaneOverflowError         the sum of the lanes could leave the lane's range
└── FrameError                    the bytes are not a frame of this protocol
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntFlag
from typing import Final

from p4reduce_contracts.errors import (
    FrameError,
    GeometryMismatchError,
    InvalidTensorError,
    JoinError,
    LaneOverflowError,
    P4ReduceError,
)
from p4reduce_contracts.ranks import name_ranks

__all__ = [
    "CollectiveError",
    "CollectiveMismatchError",
    "CollectiveTimeoutError",
    "CommunicatorClosedError",
    "CorruptSumError",
    "ControllerLostError",
    "ForkedProcessError",
    "FrameError",
    "HostLostError",
    "GeometryMismatchError",
    "InvalidTensorError",
    "JobResetError",
    "JoinError",
    "LaneOverflowError",
    "NotFiniteError",
    "P4ReduceError",
    "PeerRefusedError",
    "Reason",
    "UnderflowError",
]


AGAIN: Final = "start all ranks again, as torchrun does, or close this communicator and join again"
"""What to do where a communicator cannot be used any more, in a script of init_process_group and in others."""


class CollectiveError(P4ReduceError):
    """A collective failed, and the ranks may disagree about it: the communicator is unusable."""


class CollectiveTimeoutError(CollectiveError):
    """The deadline of a collective passed."""

    def __init__(self, message: str, missing_ranks: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.missing_ranks = tuple(missing_ranks)


class CollectiveMismatchError(CollectiveError):
    """The ranks called different collectives; `calls` maps each rank to what it called, `layout` is this rank's.

    In a job with more ranks than an opening frame has places for (64 with the default pipeline) `calls` has this rank's
    call only: each rank's error has its own.
    """

    def __init__(self, calls: Mapping[int, str], layout: str = "") -> None:
        self.calls, self.layout = dict(calls), layout
        said = _by_text(self.calls)
        if len(self.calls) == 1:
            said += "; at least one other rank called another: compare this error with those of the other ranks"
        if layout and len({text.partition(" ")[0] for text in self.calls.values()}) == 1:
            said += f"; the layout of this rank is {layout!r}: compare it with those in the other ranks' errors"
        super().__init__(f"the ranks called different collectives: {said}")


class CorruptSumError(CollectiveError):
    """The sum of a round is not that of what the ranks sent: something changed a word on its way or in the switch."""

    def __init__(self, job: str, slot: int, round_: int, answers: int) -> None:
        self.job, self.slot, self.round = job, slot, round_
        super().__init__(
            f"job {job}, slot {slot}, round {round_}: the switch gave {answers} times the same wrong sum (its check "
            "word does not fit, or a word is larger than the ranks' words can add up to), so a word was damaged on its "
            f"way to the switch, or inside it; nothing of it was handed out: {AGAIN}. If it comes back, look for a "
            "faulty host, cable or switch"
        )


class JobResetError(CollectiveError):
    """The controller ended this epoch of the job; `reason` says why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the job was reset: {reason}; {AGAIN}")


class ControllerLostError(JobResetError):
    """The controller answered no heartbeat for longer than the lease allows."""


class HostLostError(JobResetError):
    """The sums over hosts (docs/hosts.md) cannot go on in this epoch: a process or a shard's job has ended."""

    def __init__(self, reason: str) -> None:
        CollectiveError.__init__(self, f"{reason}; {AGAIN}")
        self.reason = reason


class Reason(IntFlag):
    """The reason for which a rank refused; several where it is not known which of them. 8 is no longer in use."""

    OTHER = 1
    NOT_FINITE = 2
    LANE_OVERFLOW = 4
    INVALID_TENSOR = 16
    UNDERFLOW = 32

    def __str__(self) -> str:
        return ", or ".join(_REASON_TEXTS[reason] for reason in self)


_REASON_TEXTS = {
    Reason.OTHER: "an error of its own program",
    Reason.NOT_FINITE: "a NaN or an infinity",
    Reason.LANE_OVERFLOW: "a sum that could leave its lanes",
    Reason.INVALID_TENSOR: "a tensor that cannot be summed",
    Reason.UNDERFLOW: "numbers that would become 0",
}


class PeerRefusedError(P4ReduceError):
    """Another rank could not take part in this collective; `reasons` maps each such rank to why.

    In a job with more ranks than an opening frame has places for (64 with the default pipeline), ranks that refuse the
    same collective for different reasons all have all these reasons.

    Every rank raises in the same collective, the one that refused the error it had, and none has a result. The
    communicator stays usable: call the next collective on all ranks.
    """

    def __init__(self, call: str, reasons: Mapping[int, Reason]) -> None:
        self.reasons = dict(reasons)
        said = _by_text({rank: str(reason) for rank, reason in self.reasons.items()})
        super().__init__(f"{call} was refused, so no rank has its result ({said}); all ranks can go on with the next")


def _by_text(texts: Mapping[int, str]) -> str:
    """Return what is said of each rank, those with the same text together, in the order of the first of them."""
    ranks: dict[str, list[int]] = {}
    for rank, text in sorted(texts.items()):
        ranks.setdefault(text, []).append(rank)
    return "; ".join(f"{name_ranks(them)}: {text}" for text, them in ranks.items())


class CommunicatorClosedError(P4ReduceError):
    """A collective was called on a communicator that was closed."""


class ForkedProcessError(P4ReduceError):
    """A forked child used its parent's communicator; it has to join as a rank of its own, or not at all."""


class NotFiniteError(InvalidTensorError):
    """The data holds a NaN or an infinity."""


class UnderflowError(InvalidTensorError):
    """More of the numbers than the caller accepts would become 0, beside much larger ones."""

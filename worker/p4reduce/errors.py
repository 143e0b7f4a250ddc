"""Everything p4reduce raises on purpose.

P4ReduceError
├── JoinError                  joining a job failed; the message says what to change
│   └── GeometryMismatch       this worker cannot speak the switch's frame shape
├── CollectiveError            a collective failed; the communicator is broken from then on
│   ├── CollectiveTimeout      the deadline passed; names the ranks that are missing
│   ├── CollectiveMismatch     the ranks called different collectives; says what each called
│   ├── CorruptSum             what the switch summed is not what the ranks sent; nothing of it was handed out
│   └── JobReset               the controller ended this epoch of the job; join again
│       └── ControllerLost     no heartbeat was answered for the lease's dead time
├── PeerRefused                another rank cannot take part in this collective; all go on with the next
├── CommunicatorClosed         a collective was called after close()
├── ForkedProcess              a forked child used its parent's communicator
├── InvalidTensor              the data cannot be summed (type, size, ...); the other ranks get PeerRefused
│   ├── NotFinite              ... since it holds a NaN or an infinity
│   ├── LaneOverflow           the sum of the lanes could leave the lane's range
│   └── IntegerOverflow        the sum of the integers could leave 32 bits
└── FrameError                 the bytes are not a frame of this protocol
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from p4reduce_contracts.errors import (
    FrameError,
    GeometryMismatch,
    InvalidTensor,
    JoinError,
    LaneOverflow,
    P4ReduceError,
)

__all__ = [
    "CollectiveError",
    "CollectiveMismatch",
    "CollectiveTimeout",
    "CommunicatorClosed",
    "CorruptSum",
    "ControllerLost",
    "ForkedProcess",
    "FrameError",
    "GeometryMismatch",
    "IntegerOverflow",
    "InvalidTensor",
    "JobReset",
    "JoinError",
    "LaneOverflow",
    "NotFinite",
    "P4ReduceError",
    "PeerRefused",
    "Reason",
]


class CollectiveError(P4ReduceError):
    """A collective failed, and the ranks may disagree about it: the communicator is unusable."""


class CollectiveTimeout(CollectiveError):
    """The deadline of a collective passed."""

    def __init__(self, message: str, missing_ranks: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.missing_ranks = tuple(missing_ranks)


class CollectiveMismatch(CollectiveError):
    """The ranks called different collectives; `calls` maps each rank to what it called."""

    def __init__(self, calls: Mapping[int, str]) -> None:
        self.calls = dict(calls)
        said = "; ".join(f"rank {rank}: {call}" for rank, call in sorted(self.calls.items()))
        super().__init__(f"the ranks called different collectives: {said}")


class CorruptSum(CollectiveError):
    """The sum of a round is not that of what the ranks sent: something changed a word on its way or in the switch."""

    def __init__(self, job: str, slot: int, round_: int, answers: int) -> None:
        self.job, self.slot, self.round = job, slot, round_
        super().__init__(
            f"job {job}, slot {slot}, round {round_}: the switch gave {answers} times the same wrong sum (its check "
            "word does not fit, or a word is larger than the ranks' words can add up to), so a word was damaged on its "
            "way to the switch, or inside it; nothing of it was handed out. "
            "Close this communicator and join again; if it comes back, look for a faulty host, cable or switch"
        )


class JobReset(CollectiveError):
    """The controller ended this epoch of the job; `reason` says why."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the job was reset: {reason}; close this communicator and join again")


class ControllerLost(JobReset):
    """The controller answered no heartbeat for longer than the lease allows."""


class Reason(IntEnum):
    """Why a rank refused, as one byte tells the others."""

    OTHER = 0
    NOT_FINITE = 1
    LANE_OVERFLOW = 2
    INTEGER_OVERFLOW = 3
    INVALID_TENSOR = 4

    def __str__(self) -> str:
        return _REASON_TEXTS[self]


_REASON_TEXTS = {
    Reason.OTHER: "an error of its own program",
    Reason.NOT_FINITE: "a NaN or an infinity",
    Reason.LANE_OVERFLOW: "a sum that could leave its lanes",
    Reason.INTEGER_OVERFLOW: "a sum that could leave int32",
    Reason.INVALID_TENSOR: "a tensor that cannot be summed",
}


class PeerRefused(P4ReduceError):
    """Another rank could not take part in this collective; `reasons` maps each such rank to why.

    Every rank raises in the same collective, the one that refused the error it had, and none has a result. The
    communicator stays usable, and the ranks in step: call the next collective on all of them.
    """

    def __init__(self, call: str, reasons: Mapping[int, Reason]) -> None:
        self.reasons = dict(reasons)
        said = "; ".join(f"rank {rank}: {reason}" for rank, reason in sorted(self.reasons.items()))
        super().__init__(f"{call} was refused, so no rank has its result ({said}); all ranks can go on with the next")


class CommunicatorClosed(P4ReduceError):
    """A collective was called on a communicator that was closed."""


class ForkedProcess(P4ReduceError):
    """A forked child used its parent's communicator; it has to join as a rank of its own, or not at all."""


class NotFinite(InvalidTensor):
    """The data holds a NaN or an infinity."""


class IntegerOverflow(InvalidTensor):
    """The sum over all ranks could leave the range of int32."""

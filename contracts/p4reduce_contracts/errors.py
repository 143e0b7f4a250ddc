"""The errors that more than one program raises; `p4reduce.errors` shows users of the worker library the whole tree."""

from __future__ import annotations


class P4ReduceError(Exception):
    """Base of every error p4reduce raises on purpose."""


class JoinError(P4ReduceError):
    """Joining a job failed; the message says what to change."""


class GeometryMismatchError(JoinError):
    """The switch's frame shape (columns, block words, world size) cannot be used."""


class InvalidTensorError(P4ReduceError, ValueError):
    """The data cannot be summed by the switch; nothing was sent."""


class LaneOverflowError(InvalidTensorError):
    """The sum over all ranks could leave the range of a lane."""


class FrameError(P4ReduceError):
    """The bytes are not a frame; `reason` is one of `wire.frames.FRAME_FAULTS`."""

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}: {detail}")

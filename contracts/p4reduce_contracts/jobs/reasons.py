"""Why a job was reset, in the words that its members receive, where a worker acts upon them."""

from __future__ import annotations

import re
from typing import Final

_ASKED_FOR: Final = re.compile(r"rank \d+ (?:left|finished)|job \S+ was removed")


def rank_left(rank: int) -> str:
    """Return the reason for the others when a rank has given its place up."""
    return f"rank {rank} left"


def rank_finished(rank: int) -> str:
    """Return the reason for the others when a rank has left after all had agreed that the job is at its end."""
    return f"rank {rank} finished"


def is_normal_end(reason: str) -> bool:
    """Return whether all ranks had agreed on the end."""
    return reason.endswith(" finished")


def job_removed(name: str) -> str:
    """Return the reason for all members when their job was removed."""
    return f"job {name} was removed"


def was_asked_for(reason: str) -> bool:
    """Return whether the end of the job was requested, so that joining again would wait in vain."""
    return _ASKED_FOR.fullmatch(reason) is not None

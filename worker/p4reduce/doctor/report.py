"""The results of the checks, each with what to change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """How a check went."""

    OK = "ok"
    WARNING = "warning"
    """It works, and will be slow or break later."""
    FAILED = "failed"
    SKIPPED = "skipped"
    """It could not be checked."""


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    status: Status
    found: str
    advice: str = ""
    """What to change; "" when nothing is wrong, or `found` says it already."""

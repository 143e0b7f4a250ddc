"""What an examination finds: one check after the other, each with what to change."""

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
    """It could not be looked at."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: Status
    found: str
    advice: str = ""
    """What to change; "" when nothing is wrong, or `found` says it already."""

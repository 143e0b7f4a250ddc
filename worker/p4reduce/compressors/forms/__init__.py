"""The wire forms: how a compressed gradient is sent. One file each: its messages, its segments, its answers."""

from __future__ import annotations

from enum import StrEnum


class Form(StrEnum):
    """How a compressed gradient is sent."""

    SUM = "sum"
    GATHER = "gather"
    SHARED = "shared"


__all__ = ["Form"]

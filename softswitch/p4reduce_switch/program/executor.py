"""The interface between the switch and whatever executes the P4 program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .replication import Replication
from .stateful import Counter, Meter, Register
from .tables import Table

DigestHandler = Callable[[str, list[tuple[int, ...]]], None]


class Executor(Protocol):
    """A loaded P4 program. `Program` executes it in Python; a native executor would offer the same."""

    tables: dict[str, Table]
    counters: dict[str, Counter]
    registers: dict[str, Register]
    meters: dict[str, Meter]
    replication: Replication
    on_digest: DigestHandler | None

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Take one frame that arrived at `port`; returns (port, frame) for each frame to send, in order."""

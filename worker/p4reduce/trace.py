"""A trace of the collectives of this process, for Perfetto (ui.perfetto.dev) or chrome://tracing.

`P4REDUCE_TRACE=FILE` turns it on. The processes of a machine append to one file, in the JSON Array Format of Chrome's
Trace Event Format, which needs no closing bracket. A process has a track for each job, and below it one for each rank
that it waited for.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from p4reduce_contracts.jobs.lease import Lease
from p4reduce_runtime.environment import P4REDUCE_TRACE

_TRACKS: Final = 1000
"""Tracks of a job: its own, and one for each rank that is waited for."""


def opened() -> TraceFile | None:
    """Return the file that the environment names; None without one. Raises OSError if it cannot be written."""
    name = P4REDUCE_TRACE.read()
    return _open(name, os.getpid()) if name else None


@functools.cache
def _open(name: str, process: int) -> TraceFile:
    return TraceFile(Path(name))


class TraceFile:
    """Events of this process, each written at once: what was written before a crash can be read."""

    def __init__(self, path: Path) -> None:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name) as start:
            start.write("[\n")
            start.flush()
            with contextlib.suppress(FileExistsError):  # another process of the launch made it
                os.link(start.name, path)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._jobs: dict[str, int] = {}
        """Numbers of jobs by their names: those of jobs on one host have no ids."""
        self._named: set[int] = set()

    def span(
        self,
        name: str,
        begun: float,
        ended: float,
        lease: Lease,
        arguments: Mapping[str, object],
        *,
        waits_for: int | None = None,
    ) -> None:
        """Write what a collective was and cost, or how long it waited for a rank; in seconds of a monotonic clock."""
        place = {"pid": os.getpid(), "tid": self._jobs.setdefault(lease.name, len(self._jobs)) * _TRACKS}
        track = f"job {lease.name}"
        if waits_for is not None:
            place["tid"] += 1 + waits_for
            track += f": waits for rank {waits_for}"
        events: list[Mapping[str, object]] = []
        if place["tid"] not in self._named:
            self._named.add(place["tid"])
            events.append({"ph": "M", "name": "process_name", **place, "args": {"name": f"process {place['pid']}"}})
            events.append({"ph": "M", "name": "thread_name", **place, "args": {"name": track}})
        microseconds = {"ts": round(begun * 1e6, 3), "dur": round((ended - begun) * 1e6, 3)}
        events.append({"ph": "X", "name": name, **place, **microseconds, "args": {"rank": lease.rank, **arguments}})
        os.write(self._file, "".join(json.dumps(event) + ",\n" for event in events).encode())


class TracedWaits:
    """Writes for which ranks a collective waits, each from the first look that finds it missing to the next without."""

    def __init__(self, file: TraceFile, lease: Lease) -> None:
        self._file, self._lease = file, lease
        self._since: dict[int, float] = {}

    def look(self, missing_ranks: Sequence[int], now: float) -> None:
        """Write the waits that have ended."""
        for rank in [rank for rank in self._since if rank not in missing_ranks]:
            self._file.span(f"rank {rank}", self._since.pop(rank), now, self._lease, {}, waits_for=rank)
        for rank in missing_ranks:
            self._since.setdefault(rank, now)

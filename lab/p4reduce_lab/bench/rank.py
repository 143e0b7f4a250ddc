"""One rank of the compared programs: executes requests from a Unix socket and replies how long each took.

Requests and replies are lines of JSON. Between requests a rank blocks on the socket, so it takes no processor time.
"""

from __future__ import annotations

import json
import socket
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from statistics import median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from p4reduce_lab.bench.tensors import Kind, tensor, total
from p4reduce_lab.network import interface_bytes

Reply = dict[str, Any]
Sum = Callable[[], NDArray[np.float32]]
"""Sums over all ranks, once; returns the result."""
_READY_S = 0.05
"""Seconds from the end of the barrier to the start: each rank must have received the start time before it comes."""
_KEPT_BYTES = 256 << 20
"""Bytes of the tensors that are used in turn, so that each keeps its place in memory, as gradients do."""
_LOST_BITS: Final = {"fp16": 10, "16": 11, "8": 3}
"""Format -> bits n: a sum of up to 8 ranks is off by at most ranks times a rank's largest number times 2^-n."""


def later() -> float:
    """Return a moment of the machine's monotonic clock, soon."""
    return time.monotonic() + _READY_S


class Rank(ABC):
    """The requests of one rank, a public method each."""

    def __init__(self, rank: int, world_size: int, interface: str) -> None:
        self._rank, self._world_size, self._interface = rank, world_size, interface
        self._sources: dict[Kind, tuple[NDArray[np.float32], NDArray[np.float32]]] = {}
        self._totals: dict[Kind, NDArray[np.float32]] = {}

    @abstractmethod
    def _same_moment(self) -> float:
        """Return what rank 0's `later` is, once all ranks are ready.

        A barrier alone would not do: on two cores the ranks leave it one after the other, seen up to 8 ms apart.
        """

    @abstractmethod
    def _sum_of(self, peer: str, kind: Kind, data: NDArray[np.float32]) -> Sum:
        """Return what sums `data` in place, by a peer."""

    def all_reduce(self, peer: str, elements: int, density: float, pattern: str, calls: int, check: bool) -> Reply:
        """Sum a float32 tensor over all ranks, `calls` times in a row, and measure a call: the median.

        With `check`, see that the sum is right. `peer` ends with the wire format, where it has one: "p4reduce 16".
        """
        kind = Kind(elements, density, pattern)
        source, data = self._source(kind)
        work = self._sum_of(peer, kind, data)
        found, measured = self._measure(work, calls, lambda: np.copyto(data, source))  # all peers sum in place
        if check:
            if kind not in self._totals:
                self._totals = {kind: total(kind, self._world_size)}
            expected = self._totals[kind]
            lost = _LOST_BITS.get(peer.rpartition(" ")[2])
            off = max(1e-3, 0 if lost is None else self._world_size * np.abs(expected).max() * 2.0**-lost)
            if not np.allclose(found, expected, rtol=1e-3, atol=off):
                raise AssertionError(f"the sum by {peer} is wrong by up to {np.abs(found - expected).max()}")
        return measured

    def _source(self, kind: Kind) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return this rank's tensor and the memory to sum it in."""
        if kind not in self._sources:
            source = tensor(kind, self._rank, self._world_size)
            if sum(2 * held.nbytes for held, _ in self._sources.values()) + 2 * source.nbytes > _KEPT_BYTES:
                self._sources.clear()
            self._sources[kind] = source, np.empty_like(source)
        return self._sources[kind]

    def _counters(self) -> dict[str, int]:
        """Return what is counted from the rank's start on."""
        up, down = interface_bytes(self._interface)
        return {"bytes_up": up, "bytes_down": down}

    def _measure(
        self, work: Callable[[], Any], calls: int = 1, prepare: Callable[[], object] = lambda: None
    ) -> tuple[Any, Reply]:
        """Run `work` on all ranks, each call after `prepare`, from a moment on that all share.

        Returns the last result; the median seconds of a call, and what all of them took.
        """
        prepare()
        start = self._same_moment()
        before = self._counters()
        time.sleep(max(0.0, start - time.monotonic()))
        seconds, cpu_s = [], 0.0
        for call in range(calls):
            if call:
                prepare()
            cpu_s -= time.process_time()
            began = time.monotonic() if call else start
            result = work()
            seconds.append(time.monotonic() - began)
            cpu_s += time.process_time()
        elapsed_s = time.monotonic() - start
        counted = {name: count - before[name] for name, count in self._counters().items()}
        return result, {"seconds": median(seconds), "elapsed_s": elapsed_s, "cpu_s": cpu_s, **counted}

    def serve(self, path: str) -> None:
        """Execute requests until the other end closes the socket."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            with connection.makefile("rw", encoding="utf-8") as lines:
                print(json.dumps({"rank": self._rank}), file=lines, flush=True)
                for line in lines:
                    request = json.loads(line)
                    name = request.pop("do")
                    try:
                        if name.startswith("_") or name == "serve":
                            raise ValueError(f"there is no request {name!r}")
                        reply = getattr(self, name)(**request)
                    except Exception:
                        reply = {"error": traceback.format_exc()}
                    print(json.dumps(reply), file=lines, flush=True)

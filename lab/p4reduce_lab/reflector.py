"""A program that sends every frame back where it came from: what the switch's loop costs without a program."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from p4reduce_runtime.datagrams import ENCAP_BYTES
from p4reduce_switch.program import batch
from p4reduce_switch.program.state.replication import Replication


class Reflector:
    """A program with a native batch: it swaps the addresses of a frame. Checksums stay right.

    It needs numba, and compiles when it is made.
    """

    room = 1 << 17
    copies = 1

    def __init__(self) -> None:
        import numba

        from p4reduce_lab.reflector_kernel import reflect

        compiled: Any = numba.cfunc("int64(int64)")(reflect)
        self._compiled = compiled
        self.address: int = compiled.address
        self.on_digest: Any = None
        self.action_profiles: dict[str, Any] = {}
        self.tables: dict[str, Any] = {}
        self.counters: dict[str, Any] = {}
        self.registers: dict[str, Any] = {}
        self.meters: dict[str, Any] = {}
        self.replication = Replication()

    @property
    def batch(self) -> Reflector:
        """Itself."""
        return self

    def new(self) -> NDArray[np.int64]:
        """Return a batch's words."""
        return np.zeros(batch.WORDS, np.int64)

    def collect(self) -> None:
        """Nothing happens in it that could be collected."""

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Send one frame back."""
        if len(frame) < ENCAP_BYTES:
            return []
        swapped = frame[6:12] + frame[:6] + frame[12:26] + frame[30:34] + frame[26:30] + frame[36:38] + frame[34:36]
        return [(port, swapped + frame[38:])]

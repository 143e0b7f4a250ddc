"""Which engine runs a collective: the compiled one where it can, else the one in Python."""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

from p4reduce.protocol.call import Call
from p4reduce.protocol.compiled.channel import Channel
from p4reduce.protocol.compiled.collective import CompiledCollective
from p4reduce.protocol.compiled.segments import Segments
from p4reduce.protocol.engine import Collective
from p4reduce.protocol.source import BlockSource, check_size
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_runtime import datagrams, kernels

AnyCollective = Collective | CompiledCollective


def make_collective(
    lease: Lease,
    slot_rounds: list[int],
    source: BlockSource,
    call: Call,
    timeout_s: float,
    *,
    keep_words: bool = False,
    **options: Any,
) -> AnyCollective:
    """Return one rank's side of one collective; the other arguments are Collective's, and so is all that it does.

    Only with `keep_words` it has `sums`; the compiled engine decodes them on arrival otherwise.
    """
    compiled = load_kernels()
    if compiled is not None:
        check_size(source)
        segments = Segments.of(source, floats=not keep_words)
        if segments is not None:
            return CompiledCollective(compiled, lease, slot_rounds, segments, call, timeout_s, **options)
    return Collective(lease, slot_rounds, source, call, timeout_s, **options)


def load_kernels() -> ModuleType | None:
    """Return the compiled engine's kernels; None when they are switched off, and on big-endian machines.

    The first time on a machine they are compiled, which takes seconds.
    """
    return _kernels() if kernels.enabled() and sys.byteorder == "little" else None


def make_channel(descriptor: int, *, plain: bool) -> Channel | None:
    """Return what lets the compiled engine use a connected UDP socket by itself; None where it cannot."""
    pump = load_pump()
    return None if pump is None else Channel(pump, descriptor, plain=plain)


def load_pump() -> ModuleType | None:
    """Return the compiled engine's loop over a socket, compiled if need be; None where there is none."""
    return None if load_kernels() is None or not datagrams.supported() else _pump()


@functools.cache
def _pump() -> ModuleType | None:
    return kernels.load("p4reduce.protocol.compiled.pump")


@functools.cache
def _kernels() -> ModuleType | None:
    return kernels.load("p4reduce.protocol.compiled.kernels")

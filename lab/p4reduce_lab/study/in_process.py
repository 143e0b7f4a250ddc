"""One process plays all ranks: the sums that the switch would make, without a switch.

The same encoding and decoding, and the same 32-bit additions, as when the blocks travel; only the walk over the wire
is left out. tests/study/test_study_in_process.py compares the result with the switch's, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from p4reduce.codecs import Segment
from p4reduce.codecs.float_lanes import FloatLanes
from p4reduce.compressors.exchange import Gradients, Outcome, Request, exchange
from p4reduce.compressors.interface import Compressor
from p4reduce.group import Group
from p4reduce.protocol.source import UNTOUCHED, BlockSource, Words


def groups(world_size: int, *, columns: int = 8, block_words: int = 32, slots: int = 64) -> list[Group]:
    """The places of a job's ranks, as the controller would grant them."""
    return [Group("study", rank, world_size, block_words, columns, slots) for rank in range(world_size)]


def exchange_all(
    compressors: Sequence[Compressor], gradients: Sequence[Gradients], places: Sequence[Group]
) -> list[Outcome]:
    """Exchange one bucket between ranks that all live here; all by rank."""
    steps = [exchange(*one) for one in zip(compressors, gradients, places, strict=True)]
    requests = [next(one) for one in steps]
    while True:
        results = _sum(requests, places[0])
        outcomes: list[Outcome] = []
        following: list[Request] = []
        for one, received in zip(steps, results, strict=True):
            try:
                following.append(one.send(received))
            except StopIteration as finished:
                outcomes.append(finished.value)
        if outcomes:
            return outcomes
        requests = following


def _sum(requests: Sequence[Request], group: Group) -> list[list[Any]]:
    """The results of one collective, by rank and segment."""
    layouts = {(request.name, *(segment.layout for segment in request.segments)) for request in requests}
    if len(layouts) != 1:
        raise AssertionError(f"the ranks ask for different collectives: {layouts}")
    by_segment = [_sum_segment(parts, group) for parts in zip(*(one.segments for one in requests), strict=True)]
    return [list(results) for results in zip(*by_segment, strict=True)]


def _sum_segment(parts: Sequence[Segment], group: Group) -> list[Any]:
    sources = [part.bind(group.world_size, group.block_words, False) for part in parts]
    words, exponents = sum_blocks(sources, group)
    if isinstance(parts[0], FloatLanes):  # the only result that differs between ranks
        return [part.wrap(source.decode(words, exponents)[0]) for part, source in zip(parts, sources, strict=True)]
    (result,) = sources[0].decode(words, exponents)
    return [parts[0].wrap(result)] * len(parts)


def sum_blocks(sources: Sequence[BlockSource], group: Group) -> tuple[Words, NDArray[np.uint8]]:
    """Return the summed words of all blocks, [blocks, block_words], and the exponents agreed for them, [blocks]."""
    exponents = np.full(sources[0].n_blocks, UNTOUCHED, np.uint8)
    held = np.logical_or.reduce([source.nonzero for source in sources])
    exponents[held] = np.max([np.where(s.nonzero, s.exponents, 0)[held] for s in sources], axis=0)
    sums = np.zeros((sources[0].n_blocks, group.block_words), np.uint32)
    for source in sources:
        blocks = np.flatnonzero(source.nonzero)
        if len(blocks):
            sums[blocks] += source.encode(blocks, exponents[blocks]).view(">u4").astype(np.uint32)
    return sums.view(np.int32).astype(">i4"), exponents

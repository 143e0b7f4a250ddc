"""All ranks in one process: the sums that the switch would make, without a switch.

The same encoding and decoding, and the same 32-bit additions, as when the blocks travel; only the walk over the wire
is left out: the result is that over the switch, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from p4reduce.codecs import Segment, Summed
from p4reduce.compressors.exchange import Gradients, Outcome, Request, exchange
from p4reduce.compressors.interface import Compressor
from p4reduce.protocol.blocks import sum_blocks
from p4reduce_contracts.jobs.lease import Lease


def groups(world_size: int, *, columns: int = 8, block_words: int = 32, slots: int = 64) -> list[Lease]:
    """Return the places of a job's ranks, as the controller would grant them."""
    return [Lease(1, "local", 1, rank, world_size, slots, columns, block_words) for rank in range(world_size)]


def exchange_all(
    compressors: Sequence[Compressor], gradients: Sequence[Gradients], places: Sequence[Lease]
) -> list[Outcome]:
    """Exchange one bucket between ranks that are all in this process; everything by rank."""
    steps = [exchange(*one) for one in zip(compressors, gradients, places, strict=True)]
    requests = [next(one) for one in steps]
    while True:
        outcomes: list[Outcome] = []
        following: list[Request] = []
        for one, received in zip(steps, _sum(requests, places[0]), strict=True):
            try:
                following.append(one.send(received))
            except StopIteration as finished:
                outcomes.append(finished.value)
        if outcomes:
            return outcomes
        requests = following


def _sum(requests: Sequence[Request], group: Lease) -> list[list[Any]]:
    layouts = {
        (request.name, request.agreement, *(segment.layout for segment in request.segments)) for request in requests
    }
    if len(layouts) != 1:
        raise AssertionError(f"the ranks ask for different collectives: {layouts}")
    segments = zip(*(one.segments for one in requests), strict=True)
    by_segment = [sum_segment(parts, group) for parts in segments]
    return [list(results) for results in zip(*by_segment, strict=True)]


def sum_segment(parts: Sequence[Segment], group: Lease) -> list[Any]:
    """Return the sums of one segment of all ranks, by rank."""
    sources = [part.bind(group.world_size, group.block_words, False) for part in parts]
    summed = sum_blocks(sources, group.block_words)
    results: list[Any] = []
    for source in sources:
        results += source.decode(*summed)
        if not isinstance(results[-1], Summed):  # the only result that differs between ranks
            return results * len(parts)
    return results

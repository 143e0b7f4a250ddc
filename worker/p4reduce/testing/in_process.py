"""All ranks in one process: the sums that the switch would make, without a switch.

The same encoding and decoding, and the same 32-bit additions, as when the blocks travel; only the walk over the wire
is left out: the result is that over the switch, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from p4reduce.codecs import Segment, Summed
from p4reduce.compressors.exchange import Gradients, Outcome, Request, exchange
from p4reduce.compressors.interface import Compressor
from p4reduce.protocol.blocks import Blocks, sum_blocks
from p4reduce_contracts.jobs.lease import Lease

Within = Sequence[AbstractContextManager[object]]
"""A context for each rank's work, by rank."""
_NOTHING: Final = nullcontext()


def groups(world_size: int, *, columns: int = 8, block_words: int = 32, slots: int = 64) -> list[Lease]:
    """Return the places of a job's ranks, as the controller would grant them."""
    return [Lease(1, "local", 1, rank, world_size, slots, columns, block_words) for rank in range(world_size)]


def exchange_all(
    compressors: Sequence[Compressor],
    gradients: Sequence[Gradients],
    places: Sequence[Lease],
    *,
    in_rank_0: AbstractContextManager[object] = _NOTHING,
) -> list[Outcome]:
    """Exchange one bucket between ranks that are all in this process; everything by rank.

    What rank 0 does, and nothing else, is done within `in_rank_0`, which is entered several times.
    """
    steps = [exchange(*one) for one in zip(compressors, gradients, places, strict=True)]
    within: Within = [in_rank_0, *[_NOTHING] * (len(steps) - 1)]
    requests: list[Request] = []
    for one, its in zip(steps, within, strict=True):
        with its:
            requests.append(next(one))
    while True:
        results = _sum(requests, places[0], within)
        outcomes: list[Outcome] = []
        following: list[Request] = []
        for one, received, its in zip(steps, results, within, strict=True):
            try:
                with its:
                    following.append(one.send(received))
            except StopIteration as finished:
                outcomes.append(finished.value)
        if outcomes:
            return outcomes
        requests = following


def _sum(requests: Sequence[Request], group: Lease, within: Within) -> list[list[Any]]:
    """The results of one collective, by rank and segment."""
    layouts = {
        (request.name, request.agreement, *(segment.layout for segment in request.segments)) for request in requests
    }
    if len(layouts) != 1:
        raise AssertionError(f"the ranks ask for different collectives: {layouts}")
    segments = zip(*(one.segments for one in requests), strict=True)
    by_segment = [sum_segment(parts, group, within) for parts in segments]
    return [list(results) for results in zip(*by_segment, strict=True)]


def sum_segment(parts: Sequence[Segment], group: Lease, within: Within | None = None) -> list[Any]:
    """Sum one segment of all ranks; the results by rank."""
    within = within or [_NOTHING] * len(parts)
    sources: list[Blocks] = []
    for part, its in zip(parts, within, strict=True):
        with its:
            sources.append(part.bind(group.world_size, group.block_words, False))
    summed = sum_blocks(sources, group.block_words)
    results: list[Any] = []
    for source, its in zip(sources, within, strict=True):
        with its:
            results += source.decode(*summed)
        if not isinstance(results[-1], Summed):  # the only result that differs between ranks
            return results * len(parts)
    return results

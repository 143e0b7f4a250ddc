"""Bringing the ranks to the same collective after an interruption.

A collective may end between two ranks: the last RESULT reached rank 0, whose call has returned, and not rank 1, whose
call has an error. Then rank 0 is one collective ahead. The difference is never more than one: no rank can end a
collective that another has not begun, and none begins one before it has ended the one before.

So every rank sends how many collectives it has ended. If the numbers differ, the first rank that is ahead sends the
sums and exponents that it has kept of the last one to those behind, which end it with the same bits. The ranks' own
contributions are not needed any more, which matters, since a caller may have written the result over them. From then on
all ranks are before the same collective, of which no caller has a result: it is begun again, from its inputs.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from p4reduce.errors import CollectiveError, Reason
from p4reduce.paths.hosts.layout import HostCollective
from p4reduce.protocol.blocks import Blocks, Words
from p4reduce.protocol.call import Call
from p4reduce.protocol.refusal import known_reasons

_ENDED: Final = struct.Struct("<Q")


@dataclass(frozen=True)
class CollectiveOutcome:
    """The sums of a collective, or its refusals; copied, since callers may write to what they are given."""

    number: int
    """Number of collectives before it."""
    refusals: Mapping[int, Reason]
    exponents: NDArray[np.uint8]
    """[blocks]: the agreed exponents; UNTOUCHED where no rank held the block."""
    sums: Words
    """[blocks, block_words], big-endian words."""


def resynced(call: Call, blocks: Blocks, outcome: CollectiveOutcome) -> HostCollective:
    """Return a collective whose outcome this rank did not get from its own rounds on the switch."""
    results = [] if outcome.refusals else blocks.decode(outcome.sums, outcome.exponents)
    return HostCollective(lambda: call, results, outcome.exponents, outcome.sums, outcome.refusals)


class RankProgress(NamedTuple):
    """The progress of a rank: the collectives that it has ended."""

    ended: int
    """Number of collectives that the rank has ended."""
    refusals: Mapping[int, Reason]
    """The refusals of the last of these collectives."""


def pack_progress(ended: int, kept: CollectiveOutcome | None, world_size: int) -> bytes:
    """Encode a rank's progress, of the same length on all. Raises CollectiveError if its last outcome was not kept."""
    refusals = bytearray(world_size)
    if ended:
        if kept is None or kept.number != ended - 1:
            raise CollectiveError(
                "the last collective was interrupted before its result was kept; start all ranks anew"
            )
        for rank, reason in kept.refusals.items():
            refusals[rank] = reason
    return _ENDED.pack(ended) + bytes(refusals)


def unpack_progress(record: bytes) -> RankProgress:
    """Decode what `pack_progress` encoded."""
    (ended,) = _ENDED.unpack_from(record)
    refusals = enumerate(record[_ENDED.size :])
    return RankProgress(ended, {rank: known_reasons(code) for rank, code in refusals if code})


def sync_lagging_ranks(
    progress: list[RankProgress],
    rank: int,
    kept: CollectiveOutcome | None,
    blocks: Blocks,
    block_words: int,
    fetch: Callable[[int, bytes | None, int], bytes],
) -> CollectiveOutcome | None:
    """Send the outcome of a collective to the ranks that have not ended it; return it on those, None on the others.

    `fetch` gives all ranks the bytes of one (rejoin.py). `blocks` are this rank's contribution to the collective that
    it is before. `progress` is the same on all ranks. Raises CollectiveError when the ranks are more than one
    collective apart.
    """
    ended = [rank_progress.ended for rank_progress in progress]
    low, high = min(ended), max(ended)
    if high - low > 1:
        slow = ended.index(low)
        raise CollectiveError(
            f"rank {slow} has ended {low} collectives and rank {ended.index(high)} {high}: rank {slow} is another "
            "process than before; start all ranks anew"
        )
    if low == high:
        return None
    helper = ended.index(high)
    behind = ended[rank] == low
    refusals = progress[helper].refusals
    count = 0 if refusals else blocks.n_blocks if behind else len(kept.exponents) if kept is not None else 0
    data = b""
    if count:
        given = None if rank != helper or kept is None else kept.exponents.tobytes() + kept.sums.tobytes()
        data = fetch(helper, given, count * (1 + 4 * block_words))
    if not behind:
        return None
    sums = np.frombuffer(data, ">i4", offset=count).reshape(count, block_words)
    return CollectiveOutcome(low, refusals, np.frombuffer(data, np.uint8, count), sums)

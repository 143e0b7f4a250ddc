"""Where the ranks stand after an interruption, and how those that are behind get what they lack.

A collective may end between two ranks: the last answer reached rank 0, which has returned, and not rank 1, which has
an error. Then rank 0 stands before the next collective and rank 1 before this one. More than one apart they cannot be,
since nobody ends a collective that somebody has not begun, and nobody begins one before ending the one before.

So every rank tells how many collectives it has ended. If the numbers differ, the first rank that is ahead gives what
it has kept of the last one, sums and exponents, to those behind: they end it with the very same bits. What the ranks
had sent is not needed any more, which matters, since a caller may have written the result over it. From then on all
stand before the same collective, and nothing of it has been handed out to anybody: it is begun anew, from its inputs.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from p4reduce.errors import CollectiveError, Reason
from p4reduce.protocol.call import Call
from p4reduce.protocol.source import BlockSource
from p4reduce_contracts.wire import MAX_RANKS

_RECORD: Final = struct.Struct(f"<Q{MAX_RANKS}s")


@dataclass(frozen=True)
class Outcome:
    """What a collective came to; a copy of its own, since callers may write to what they are given."""

    number: int
    """How many collectives came before it."""
    refusals: Mapping[int, Reason]
    exponents: NDArray[np.uint8]
    """[blocks], as agreed; UNTOUCHED where no rank held the block."""
    sums: NDArray[Any]
    """[blocks, block_words], big-endian words."""


@dataclass(frozen=True)
class Completed:
    """A collective that this rank has ended with an outcome that did not come from its own rounds on the switch."""

    call: Call
    source: BlockSource
    outcome: Outcome

    @property
    def refusals(self) -> Mapping[int, Reason]:
        """The ranks that could not take part, and why."""
        return self.outcome.refusals

    @property
    def agreed_exponents(self) -> NDArray[np.uint8]:
        """[blocks]: the exponent agreed for each block."""
        return self.outcome.exponents

    @property
    def sums(self) -> NDArray[Any]:
        """[blocks, block_words]: the big-endian words as summed."""
        return self.outcome.sums

    def result(self) -> list[NDArray[Any]]:
        """Return the summed tensors."""
        return self.source.decode(self.outcome.sums, self.outcome.exponents)


class Standing(NamedTuple):
    """What a rank tells the others."""

    ended: int
    """Collectives."""
    refusals: Mapping[int, Reason]
    """Of the last one that it ended."""


class Peers(Protocol):
    """A way to the other ranks: over the switch in the new epoch, or over a process group."""

    def gather(self, record: bytes) -> list[bytes]:
        """Return every rank's record, by rank; all are of the same length."""
        ...

    def fetch(self, rank: int, data: bytes | None, size: int) -> bytes:
        """Return the `size` bytes that `rank` has; it gives them as `data`, the others None."""
        ...


def pack_standing(ended: int, kept: Outcome | None) -> bytes:
    """Write where a rank stands, at one length. Raises CollectiveError when it has not kept what it ended last."""
    refusals = bytearray(MAX_RANKS)
    if ended:
        if kept is None or kept.number != ended - 1:
            raise CollectiveError(
                "the last collective was interrupted before its result was kept; start all ranks anew"
            )
        for rank, reason in kept.refusals.items():
            refusals[rank] = reason + 1
    return _RECORD.pack(ended, bytes(refusals))


def unpack_standing(record: bytes) -> Standing:
    """Read what `pack_standing` wrote; a reason that this version does not know is OTHER."""
    ended, refusals = _RECORD.unpack(record)
    known = set(Reason)
    return Standing(
        ended,
        {rank: Reason(code - 1) if code - 1 in known else Reason.OTHER for rank, code in enumerate(refusals) if code},
    )


def catch_up(
    standings: list[Standing], rank: int, kept: Outcome | None, source: BlockSource, block_words: int, peers: Peers
) -> Outcome | None:
    """Let the ranks that are one collective behind have its outcome; return it on those, None on the others.

    `source` is what this rank brings to the collective that it stands before. All ranks give the same standings.
    Raises CollectiveError when some are further apart than an interruption can put them.
    """
    ended = [standing.ended for standing in standings]
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
    refusals = standings[helper].refusals
    blocks = 0 if refusals else source.n_blocks if behind else len(kept.exponents) if kept is not None else 0
    data = b""
    if blocks:
        given = None if rank != helper or kept is None else kept.exponents.tobytes() + kept.sums.tobytes()
        data = peers.fetch(helper, given, blocks * (1 + 4 * block_words))
    if not behind:
        return None
    sums = np.frombuffer(data, ">i4", offset=blocks).reshape(blocks, block_words)
    return Outcome(low, refusals, np.frombuffer(data, np.uint8, blocks), sums)

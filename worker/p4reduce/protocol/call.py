"""What a rank called: the four words that it shows the others in the opening round (opening.py).

word 0  operation number of the communicator
word 1  kind:4  codec:4  detail:8  proposed window:16   (the window is a proposal, not compared)
word 2  number of elements, modulo 2^32
word 3  CRC-32 of everything else that has to agree (name, segment lengths, codecs, slots used)
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from p4reduce.errors import CollectiveMismatchError, Reason
from p4reduce.protocol.refusal import code_of, reason_in
from p4reduce_contracts.wire.calls import CodecId, Kind

_WORD = 0xFFFFFFFF
HIGH_ROOT = 255
"""The root of a broadcast in the descriptor of a rank from 255 on; the layout has its number."""


@dataclass(frozen=True)
class Call:
    """One rank's call. `detail`: a broadcast's root, lane bits, number of segments, or reason of a refusal."""

    number: int
    kind: Kind
    codec: CodecId = CodecId.NONE
    detail: int = 0
    elements: int = 0
    layout: str = ""
    """Text of all else that the ranks have to agree on; only its CRC travels."""
    limit_s: float | None = None
    """Seconds that the caller gave as time limit, of which a part may be over; errors name it."""

    def words(self, window: int) -> tuple[int, int, int, int]:
        """The descriptor as four unsigned words; `window` is the proposal for the next collective."""
        detail = code_of(Reason(self.detail)) if self.kind == Kind.REFUSED else self.detail & 0xFF
        shape = self.kind << 28 | self.codec << 24 | detail << 16 | window
        return self.number & _WORD, shape, self.elements & _WORD, zlib.crc32(self.layout.encode())

    def __str__(self) -> str:
        return describe(self.words(0))


def describe(words: Sequence[int]) -> str:
    """A descriptor in words, as the error about a mismatch shows it."""
    number, shape, elements, crc = words
    kind, codec, detail = shape >> 28, shape >> 24 & 15, shape >> 16 & 0xFF
    if kind not in set(Kind) or codec not in set(CodecId):
        return f"an unknown call {[hex(word) for word in words]}"
    if kind == Kind.REFUSED:
        return f"a refusal for {reason_in(words)} (operation {number})"
    text = Kind(kind).name.lower()
    if codec == CodecId.SEGMENTS:
        text += f" of {detail} segments, {elements} elements"
    elif codec == CodecId.LANES:
        text += f" of {elements} lanes of {detail} bits"
    elif codec == CodecId.RAW:
        text += f" of {elements} bytes"
    elif codec != CodecId.NONE:
        text += f" of {elements} {CodecId(codec).name.lower()}"
    if kind == Kind.BROADCAST:
        text += f" from root {detail}" + (" or above" if detail == HIGH_ROOT else "")
    return f"{text} (operation {number}, layout {crc:08x})"


def compare_calls(calls: Sequence[Sequence[int]]) -> tuple[dict[int, Reason], int]:
    """Return which ranks refused, and why, and everybody's window for the next collective.

    Raises CollectiveMismatchError when the others did not all call the same.
    """
    refusals = {rank: reason_in(words) for rank, words in enumerate(calls) if kind_of(words) == Kind.REFUSED}
    willing = [words for rank, words in enumerate(calls) if rank not in refusals]
    agreed = {(words[0], words[1] >> 16, *words[2:]) for words in willing}  # all but the proposed window
    closing = bool(refusals) and any(kind_of(words) == Kind.CLOSE for words in willing)
    if len({words[0] for words in calls}) > 1 or len(agreed) > 1 or closing:
        raise CollectiveMismatchError({rank: describe(words) for rank, words in enumerate(calls)})
    return refusals, max(1, min(proposed_window(words) for words in calls))


def kind_of(words: Sequence[int]) -> int:
    """Return which collective a descriptor says, as a number: it may be none of `Kind`."""
    return words[1] >> 28


def proposed_window(words: Sequence[int]) -> int:
    return words[1] & 0xFFFF

"""The hash of a key in exact tables: the compiled lookup and Python's tables compute the same."""

from __future__ import annotations

from collections.abc import Iterable

MULTIPLIER = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


def hash_of(words: Iterable[int]) -> int:
    """The hash of the words of a key, 64 bits each."""
    hashed = 0
    for word in words:
        hashed = (hashed ^ word) * MULTIPLIER & _WORD
        hashed ^= hashed >> 32
    return hashed

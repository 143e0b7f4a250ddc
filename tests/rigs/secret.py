"""The secrets of a test's ranks: fixed, no two alike, and of up to 255 ranks not in any byte."""

from __future__ import annotations


def rank_secret(rank: int) -> int:
    return (rank + 1) * 0x0101010101010101 & 0xFFFFFFFFFFFFFFFF


def rank_secrets(world_size: int) -> tuple[int, ...]:
    return tuple(rank_secret(rank) for rank in range(world_size))

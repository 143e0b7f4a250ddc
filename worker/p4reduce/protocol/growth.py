"""A RESULT may be at most MAX_GROWTH_BYTES longer than the frame that it answers.

BMv2 gives each packet a buffer of its length and 512 bytes more, and aborts when the program makes the packet
longer. Any contribution may be the one that completes its round and becomes the RESULT. Every rank knows from the
agreed keys which blocks the RESULT will carry, so one that holds too few of them sends blocks of zeros for others.
"""

from __future__ import annotations

from p4reduce_contracts.wire import MAX_GROWTH_BYTES


def zero_blocks(expected: int, present: int, block_bytes: int) -> int:
    """The columns for which a rank that holds `present` of the `expected` columns has to send zeros (bit masks)."""
    missing = rest = expected & ~present
    while rest.bit_count() * block_bytes > MAX_GROWTH_BYTES:
        rest &= rest - 1
    return missing ^ rest


def with_zero_blocks(data: bytes, present: int, zeros: int, block_bytes: int) -> bytes:
    """The blocks of `present` (lowest column first) with blocks of zeros put in for the columns of `zeros`."""
    parts, start, columns = [], 0, present | zeros
    while columns:
        bit = columns & -columns
        if bit & zeros:
            parts.append(bytes(block_bytes))
        else:
            parts.append(data[start : start + block_bytes])
            start += block_bytes
        columns &= columns - 1
    return b"".join(parts)

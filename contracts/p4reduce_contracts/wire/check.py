"""The check word: a weighted sum of a frame's words, by which a worker sees that a sum of blocks is not what was sent.

    check = sum of  a[c][j] * C_c * w_j  over the columns c that are present and their words j, modulo 2^32
    w_j = (2j + 1) * 0x9E3779B1     C_c = 0x85EBCA6B^c     both modulo 2^32

It is linear, so the switch adds check words like any other word, and their sum is right for the summed blocks exactly
if every part was right for its own. All weights are odd, hence units modulo 2^32: an error in one word, whatever it is,
changes the check. Two words that differ in the same high bits may cancel; docs/protocol.md has the odds.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

WORD_FACTOR: Final = 0x9E3779B1
COLUMN_FACTOR: Final = 0x85EBCA6B
_WORD: Final = 0xFFFFFFFF


def weight(column: int, word: int) -> int:
    """The factor of a word in the check word, by the word's place."""
    return pow(COLUMN_FACTOR, column, 1 << 32) * (2 * word + 1) * WORD_FACTOR & _WORD


@cache
def weights(present: int, block_words: int) -> NDArray[np.uint32]:
    """[words of a frame with these columns]: the weight of each word, in the frame's order."""
    columns = [column for column in range(present.bit_length()) if present >> column & 1]
    found = np.array([weight(column, word) for column in columns for word in range(block_words)], np.uint32)
    found.flags.writeable = False
    return found

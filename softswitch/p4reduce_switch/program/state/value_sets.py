"""Parser value sets: values that the control plane writes, and that a select compares with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from p4reduce_switch.program.memory import ValueSetWord, Words, address, words_of

WORD = (1 << 64) - 1


class KeyTest(NamedTuple):
    """The test of one key by a member of a value set: `key & mask == value`, and key in low..high."""

    mask: int
    value: int
    low: int
    high: int


class ValueSet:
    """A value set whose members have keys of these widths in bits, without members at first.

    `words` are its words in the program's state (`memory.ValueSetWord`).
    """

    def __init__(self, name: str, widths: Sequence[int], words: Words) -> None:
        self.name = name
        self.widths = tuple(widths)
        self.members: tuple[tuple[KeyTest, ...], ...] = ()
        self._words = words
        self._memory: Words = np.zeros(1, np.int64)

    def set_members(self, members: Sequence[tuple[KeyTest, ...]]) -> None:
        """Set all members at once. ValueError for a member that does not fit the keys."""
        for member in members:
            if len(member) != len(self.widths):
                raise ValueError(f"a member of value set {self.name} has {len(self.widths)} keys, not {len(member)}")
            for test, width in zip(member, self.widths, strict=True):
                if min(test) < 0 or max(test) >> width:
                    raise ValueError(f"value set {self.name}: {test} does not fit {width} bits")
        self.members = tuple(members)
        limbs = [
            part >> 64 * word & WORD
            for member in members
            for test, width in zip(member, self.widths, strict=True)
            for part in test
            for word in range(words_of(width))
        ]
        self._memory = np.array([*limbs, 0], np.uint64).view(np.int64)
        self._words[ValueSetWord.MEMBERS] = address(self._memory)
        self._words[ValueSetWord.COUNT] = len(members)

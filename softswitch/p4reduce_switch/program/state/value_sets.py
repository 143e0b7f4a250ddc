"""Parser value sets: what a select may compare with that the control plane decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class KeyTest(NamedTuple):
    """What a member of a value set wants of one key: `key & mask == value`, and that it is in low..high."""

    mask: int
    value: int
    low: int
    high: int


class ValueSet:
    """A value set whose members have keys of these widths in bits; at first it has no members."""

    def __init__(self, name: str, widths: Sequence[int]) -> None:
        self.name = name
        self.widths = tuple(widths)
        self.members: tuple[tuple[KeyTest, ...], ...] = ()
        self._exact: set[tuple[int, ...]] = set()
        self._others: list[tuple[KeyTest, ...]] = []

    def set_members(self, members: Sequence[tuple[KeyTest, ...]]) -> None:
        """Set all members at once. ValueError for a member that does not fit the keys."""
        for member in members:
            if len(member) != len(self.widths):
                raise ValueError(f"a member of value set {self.name} has {len(self.widths)} keys, not {len(member)}")
            for test, width in zip(member, self.widths, strict=True):
                if min(test) < 0 or max(test) >> width:
                    raise ValueError(f"value set {self.name}: {test} does not fit {width} bits")
        self.members = tuple(members)
        full = [(1 << width) - 1 for width in self.widths]
        self._exact, self._others = set(), []
        for member in members:
            if all(test == KeyTest(all_, test.value, 0, all_) for test, all_ in zip(member, full, strict=True)):
                self._exact.add(tuple(test.value for test in member))
            else:
                self._others.append(member)

    def holds(self, *keys: int) -> bool:
        """Whether any member matches."""
        return keys in self._exact or any(
            all(
                key & mask == value and low <= key <= high
                for key, (mask, value, low, high) in zip(keys, member, strict=True)
            )
            for member in self._others
        )

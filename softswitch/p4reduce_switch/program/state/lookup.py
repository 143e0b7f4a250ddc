"""How a table finds an entry: one class for each way of matching.

Each has `get(key)`, which is fast and may not know, and `search(key)`, which knows; both return the
result stored with the best entry, or None. `key` is an int for one key field, a tuple for several.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any, Protocol

from p4reduce_switch.program.errors import ProgramError

Match = tuple[Any, ...]
CACHE_SIZE = 1 << 15


class Lookup(Protocol):
    """What a table needs of an index."""

    cache: dict[Any, Any]

    def add(self, match: Match, priority: int, result: Any) -> None:
        """Store `result`, or replace it."""

    def remove(self, match: Match, priority: int) -> None:
        """Forget an entry."""

    def search(self, key: Any) -> Any:
        """The best entry's result, or None."""


# Rank (smaller wins), value and mask of all keys in a row, ranges by key, result.
_Ranked = tuple[tuple[int, int], int, int, list[tuple[int, int, int]], Any]


def _rank(entry: _Ranked) -> tuple[int, int]:
    return entry[0]


def _length(item: tuple[int, Any]) -> int:
    return item[0]


class ExactLookup:
    """All keys exact: a dict."""

    def __init__(self) -> None:
        self.cache: dict[Any, Any] = {}

    def add(self, match: Match, priority: int, result: Any) -> None:
        self.cache[match[0] if len(match) == 1 else match] = result

    def remove(self, match: Match, priority: int) -> None:
        del self.cache[match[0] if len(match) == 1 else match]

    def search(self, key: Any) -> Any:
        return self.cache.get(key)


class LpmLookup:
    """One longest-prefix key among exact keys: a dict for each prefix length, longest first."""

    def __init__(self, position: int, width: int) -> None:
        self.position = position
        self.width = width
        self.cache: dict[Any, Any] = {}
        self._by_length: dict[int, dict[Match, Any]] = {}

    def _split(self, match: Match) -> tuple[int, Match]:
        value, length = match[self.position]
        return length, (*match[: self.position], value >> (self.width - length), *match[self.position + 1 :])

    def add(self, match: Match, priority: int, result: Any) -> None:
        length, key = self._split(match)
        if length not in self._by_length:
            self._by_length = dict(sorted([*self._by_length.items(), (length, {})], reverse=True, key=_length))
        self._by_length[length][key] = result

    def remove(self, match: Match, priority: int) -> None:
        length, key = self._split(match)
        del self._by_length[length][key]
        if not self._by_length[length]:
            del self._by_length[length]

    def search(self, key: Any) -> Any:
        fields = key if isinstance(key, tuple) else (key,)
        before, value, after = fields[: self.position], fields[self.position], fields[self.position + 1 :]
        for length, entries in self._by_length.items():
            found = entries.get((*before, value >> (self.width - length), *after))
            if found is not None:
                return found
        return None


class PriorityLookup:
    """Ternary, optional and range keys: entries by falling priority, the first that matches wins."""

    def __init__(self, kinds: list[str], widths: list[int]) -> None:
        self.kinds = kinds
        self.widths = widths
        self.cache: dict[Any, Any] = {}
        self._entries: list[_Ranked] = []
        self._ranks: dict[tuple[Match, int], tuple[int, int]] = {}
        self._added = 0

    def _join(self, fields: Match) -> int:
        joined = 0
        for value, width in zip(fields, self.widths, strict=True):
            joined = joined << width | value
        return joined

    def add(self, match: Match, priority: int, result: Any) -> None:
        pairs = [mask_of(kind, width, part) for kind, width, part in zip(self.kinds, self.widths, match, strict=True)]
        ranges = [(i, *match[i]) for i, kind in enumerate(self.kinds) if kind == "range"]
        value, mask = self._join(tuple(p[0] for p in pairs)), self._join(tuple(p[1] for p in pairs))
        rank = self._ranks.get((match, priority))
        if rank is not None:
            del self._entries[self._position(rank)]
        else:
            rank = self._ranks[match, priority] = (-priority, self._added)
            self._added += 1
        insort(self._entries, (rank, value, mask, ranges, result), key=_rank)

    def remove(self, match: Match, priority: int) -> None:
        del self._entries[self._position(self._ranks.pop((match, priority)))]

    def _position(self, rank: tuple[int, int]) -> int:
        return bisect_left(self._entries, rank, key=_rank)

    def search(self, key: Any) -> Any:
        fields = key if isinstance(key, tuple) else (key,)
        joined = self._join(fields)
        for _, value, mask, ranges, result in self._entries:
            if joined & mask == value and all(low <= fields[i] <= high for i, low, high in ranges):
                return result
        return None


def mask_of(kind: str, width: int, part: Any) -> tuple[int, int]:
    """(value, mask) of one element of a match tuple; (0, 0) for ranges, which are compared apart."""
    full = (1 << width) - 1
    match kind:
        case "exact":
            return part, full
        case "lpm":
            value, length = part
            return value, full ^ (full >> length)
        case "ternary":
            value, mask = part
            return value, mask
        case "optional":
            return (0, 0) if part is None else (part, full)
    return 0, 0


def canonical(kind: str, width: int, part: Any, name: str) -> Any:
    """One element of a match tuple with the bits that do not matter cleared; ValueError if malformed."""
    full = (1 << width) - 1
    try:
        match kind:
            case "exact":
                _fit(part, full, name)
                return part
            case "lpm":
                value, length = part
                _fit(value, full, name)
                if not 0 <= length <= width:
                    raise ValueError(f"{name}: prefix length {length} is outside 0..{width}")
                return value & (full ^ (full >> length)), length
            case "ternary":
                value, mask = part
                _fit(value, full, name)
                _fit(mask, full, name)
                return value & mask, mask
            case "range":
                low, high = part
                _fit(low, full, name)
                _fit(high, full, name)
                if low > high:
                    raise ValueError(f"{name}: empty range {low}..{high}")
                return low, high
            case "optional":
                if part is not None:
                    _fit(part, full, name)
                return part
    except TypeError:
        raise ValueError(f"{name}: {part!r} is not a {kind} match") from None
    raise ProgramError(f"unknown match kind {kind}")


def _fit(value: int, full: int, name: str) -> None:
    if not 0 <= value <= full:
        raise ValueError(f"{name}: {value} does not fit {full.bit_length()} bits")


def make_lookup(kinds: list[str], widths: list[int]) -> Lookup:
    """The index for a table with these match kinds."""
    if any(kind in ("ternary", "range", "optional") for kind in kinds):
        return PriorityLookup(kinds, widths)
    if "lpm" in kinds:
        return LpmLookup(kinds.index("lpm"), widths[kinds.index("lpm")])
    return ExactLookup()

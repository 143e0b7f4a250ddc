"""Slot ranges: first fit, and never two owners of one slot."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p4reduce_contracts.jobs.errors import SwitchFullError
from p4reduce_controller.registry.slots import SlotAllocator, SlotRange


def test_first_fit_reuses_the_first_gap_that_is_large_enough() -> None:
    slots = SlotAllocator(16)
    for owner, count in (("a", 4), ("b", 2), ("c", 4)):
        slots.take(owner, count)
    slots.release("a")
    assert slots.take("d", 5) == SlotRange(10, 5), "the gap of a is too small"
    assert slots.take("e", 3) == SlotRange(0, 3)


def test_the_error_for_fragmented_slots_gives_the_numbers() -> None:
    slots = SlotAllocator(4)
    for owner in "abcd":
        slots.take(owner, 1)
    slots.release("a")
    slots.release("c")
    with pytest.raises(SwitchFullError, match="2 are free, but at most 1 in one piece"):
        slots.take("e", 2)


@settings(max_examples=200)
@given(
    size=st.integers(1, 40), steps=st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(1, 12)), max_size=40)
)
def test_owners_never_share_a_slot(size: int, steps: list[tuple[int, int | None]]) -> None:
    slots = SlotAllocator(size)
    map_of_owners: list[int | None] = [None] * size  # the plainest model there is
    for owner, count in steps:
        if owner in map_of_owners:
            slots.release(str(owner))
            map_of_owners = [None if one == owner else one for one in map_of_owners]
            continue
        if count is not None and count > size:
            continue
        gap = "".join("." if one is None else "#" for one in map_of_owners)
        longest = max(map(len, gap.split("#")))
        wanted = min(64, longest) if count is None else count
        if wanted == 0 or wanted > longest:
            with pytest.raises(SwitchFullError):
                slots.take(str(owner), count)
            continue
        held = slots.take(str(owner), count)
        assert held == SlotRange(gap.index("." * wanted), wanted)
        for slot in range(held.base, held.end):
            assert map_of_owners[slot] is None
            map_of_owners[slot] = owner
        assert slots.free == map_of_owners.count(None)

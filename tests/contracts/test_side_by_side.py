"""Which slot of a job is which slot of which switch: every slot of each switch is one of the job's."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from p4reduce_contracts.wire.side_by_side import place_of, slot_of, slots_together


@pytest.mark.parametrize("slots", [*range(1, 18), 42, 128, 1022])
@pytest.mark.parametrize("switches", [1, 2, 3, 5, 32])
def test_each_slot_of_each_switch_is_one_slot_of_the_job(switches: int, slots: int) -> None:
    together = slots_together(switches, slots)
    places = [place_of(slot, switches, together) for slot in range(switches * slots)]
    assert sorted(places) == list(product(range(switches), range(slots)))
    assert [slot_of(*place, switches, together) for place in places] == list(range(switches * slots))
    of_arrays = place_of(np.arange(switches * slots), switches, together)
    assert list(zip(*(numbers.tolist() for numbers in of_arrays), strict=True)) == places


def test_four_neighbours_are_at_one_switch_and_the_next_four_at_the_next() -> None:
    together = slots_together(3, 8)
    assert [place_of(slot, 3, together) for slot in range(16)] == [
        *((switch, number) for switch in range(3) for number in range(4)),
        *((0, number) for number in range(4, 8)),
    ]
    assert (slots_together(3, 6), slots_together(3, 7), slots_together(1, 8)) == (2, 1, 1)

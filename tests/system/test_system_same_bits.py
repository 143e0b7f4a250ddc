"""The bits of a sum do not depend on how it was made (docs/determinism.md); `make same-bits` varies more."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("torch")

from system.same_bits import WAYS, Case, cases, plain, variations


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_sum_has_the_same_bits_however_it_is_made(case: Case) -> None:
    ways: Counter[str] = Counter()
    for way, difference in variations(case, 3 * len(WAYS), 5, plain(case)):
        assert not difference
        ways[way] += 1
    assert ways == {way.__name__: 3 for way in WAYS}


def test_other_bits_are_found() -> None:
    case = cases()[0]
    expected = bytearray(plain(case))
    expected[-1] ^= 1
    found = [difference for _, difference in variations(case, len(WAYS), 5, bytes(expected))]
    assert found == [
        f"float32 in 32 bits, seed 5, variation {number}: ranks [0, 1, 2, 3, 4, 5]" for number in range(len(WAYS))
    ]

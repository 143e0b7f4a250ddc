"""A flipped bit anywhere, up or down: the sum is right in the end, or there is none. rigs/bit_flips.py says how."""

from __future__ import annotations

import pytest

from rigs.bit_flips import CORRUPT_SUM, RIGHT, BitFlips
from rigs.tree import TREES


@pytest.mark.fault(
    "a bit flips in a frame, up or down, any part: down and in headers: a lost frame; in blocks going up: "
    "CorruptSumError"
)
def test_a_flipped_bit_never_causes_a_wrong_sum() -> None:
    flips = 1_000
    tried = BitFlips(seed=1)
    tried.run(flips)
    outcomes = tried.outcomes
    assert outcomes.total() == flips
    assert {key[2] for key in outcomes} == {RIGHT, CORRUPT_SUM}
    up = {key[1]: key[2] for key in outcomes if key[0] == "up"}
    assert set(up) == {"Ethernet, IPv4, UDP", "base", "secret", "check", "checksum", "keys", "blocks"}
    assert {key[1] for key in outcomes if key[0] == "down"} == set(up) - {"Ethernet, IPv4, UDP"}
    # Only what reaches the switch's registers ends a job; everything else is a lost frame, and repeated.
    assert {key[:2] for key in outcomes if key[2] == CORRUPT_SUM} == {("up", "blocks")}
    assert outcomes["up", "blocks", RIGHT] == 0, "a flipped bit of a block cannot be right"


@pytest.mark.fault(
    "a bit flips on any link of a tree of switches, in any part of a frame: in blocks going up, to a switch or "
    "between two: CorruptSumError; else a lost frame"
)
@pytest.mark.parametrize("name", ["2x1", "2x2", "2x2x2"])
def test_a_flipped_bit_on_any_link_of_a_tree_never_causes_a_wrong_sum(name: str) -> None:
    flips = 400
    tried = BitFlips(seed=1, shape=TREES[name])
    tried.run(flips)
    outcomes = tried.outcomes
    assert outcomes.total() == flips
    assert {key[2] for key in outcomes} == {RIGHT, CORRUPT_SUM}
    for direction in ("up", "trunk up", "trunk down"):
        parts = {key[1] for key in outcomes if key[0] == direction}
        assert parts == {"Ethernet, IPv4, UDP", "base", "secret", "check", "checksum", "keys", "blocks"}
    assert {key[:2] for key in outcomes if key[2] == CORRUPT_SUM} == {("up", "blocks"), ("trunk up", "blocks")}
    assert not any(outcomes[direction, "blocks", RIGHT] for direction in ("up", "trunk up"))


@pytest.mark.fault(
    "bit 31 of two words of a frame flips, up or down; sums of float32 or in lanes: the check word fits, the "
    "sums are too large: down a lost frame; up: CorruptSumError"
)
@pytest.mark.parametrize(
    ("of", "bit"), [("float32", 31), ("floats16", 31), ("floats8", 31), ("lanes4", 31), ("lanes8", 31), ("lanes8", 28)]
)
def test_a_flipped_high_bit_in_two_words_never_causes_a_wrong_sum(of: str, bit: int) -> None:
    """The check word cannot see bit 31 of two words. Where sums have room, none of them can be that large."""
    tried = BitFlips(seed=1, of=of, same_bit=bit)
    tried.run(100)
    assert {(key[0], key[2]) for key in tried.outcomes} == {("up", CORRUPT_SUM), ("down", RIGHT)}

"""The levels of a lease: one switch whose children are the ranks, or the path to the root of a tree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from p4reduce_contracts.errors import GeometryMismatchError
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch, Level

FLAT = Lease(1, "train", 7, 1, 3, 16, 8, 32)
LEAF = Level("leaf1", ((0,), (1,)), "root")
ROOT = Level("root", ((0, 1), (2,)))


def behind(*levels: Level) -> dict[str, object]:
    return {"switches": (LeasedSwitch(levels=levels),)}


TREE = replace(FLAT, **behind(LEAF, ROOT))  # type: ignore[arg-type]


def test_a_lease_without_levels_has_one_switch_whose_children_are_the_ranks() -> None:
    assert FLAT.switches[0].levels == (Level("switch", ((0,), (1,), (2,))),)
    assert (FLAT.depth, FLAT.full) == (0, 0b111)


def test_full_is_that_of_the_root() -> None:
    assert (TREE.depth, TREE.full, TREE.switches[0].levels[0].ranks) == (1, 0b11, (0, 1))
    assert replace(TREE, rank=2, switches=(LeasedSwitch(levels=(ROOT,)),)).depth == 0


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"rank": 2}, "rank 2 has it not behind switch leaf1"),
        (behind(LEAF), "other ranks than 0 to 2"),
        (behind(LEAF, Level("root", ((0,), (1, 2)))), "not behind switch root"),
        ({"world_size": 33} | behind(), "33 children of job 'train', and a switch takes at most 32"),
        ({"world_size": 1025} | behind(), "a job has 1 to 1024 ranks"),
    ],
)
def test_levels_that_do_not_lead_to_a_root_with_all_ranks_are_refused(changes: dict[str, object], match: str) -> None:
    with pytest.raises(GeometryMismatchError, match=match):
        replace(TREE, **changes)  # type: ignore[arg-type]

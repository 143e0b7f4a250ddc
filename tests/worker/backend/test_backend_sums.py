"""The end of a group of the backend; two ranks in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from p4reduce.pytorch.backend.group import ProcessGroupP4Reduce

Ranks = Callable[..., list[Any]]


def test_a_group_that_has_ended_leaves_no_key(ranks: Ranks) -> None:
    def rank_main(group: ProcessGroupP4Reduce, world: bool) -> Any:
        store, group._is_world = group._store, world
        group.allreduce([torch.ones(3)]).wait()
        assert store.list_keys()
        group.shutdown()
        return store

    for world in (True, False):
        assert [store.list_keys() for store in ranks(rank_main, world)] == [[], []]

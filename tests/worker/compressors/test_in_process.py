"""One process playing all ranks: what it refuses; test_methods.py has that it gives what a switch gives."""

from __future__ import annotations

import pytest
import torch

from p4reduce.compressors import AdaComp, Compressor
from p4reduce.testing.in_process import exchange_all, groups
from p4reduce_contracts.wire.geometry import DEFAULT
from rigs.ranks import make, odd


def test_ranks_with_different_calls_are_an_error() -> None:
    compressors = [make("adacomp") for _ in range(2)]
    given = [odd(0, 0), {**odd(1, 0), "small": torch.ones(3, 3)}]
    with pytest.raises(AssertionError, match="the ranks ask for different collectives"):
        exchange_all(compressors, given, groups(2))


def test_ranks_with_different_settings_are_an_error() -> None:
    """Their messages look alike, but for the collective's name."""
    compressors: list[Compressor] = [AdaComp(form="sum", levels=levels) for levels in (2, 3)]
    with pytest.raises(AssertionError, match="the ranks ask for different collectives: .*3 levels"):
        exchange_all(compressors, [odd(0, 0), odd(1, 0)], groups(2))


def test_leases_of_a_group_are_of_one_job() -> None:
    places = groups(4)
    assert [(place.rank, place.world_size) for place in places] == [(rank, 4) for rank in range(4)]
    assert {(place.columns, place.block_words) for place in places} == {(DEFAULT.columns, DEFAULT.block_words)}

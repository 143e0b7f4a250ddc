"""One process playing all ranks gives what a switch gives, bit for bit: the reference, and the executed program."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from p4reduce.compressors import AdaComp, Compressor
from p4reduce.group import Group
from p4reduce.testing.in_process import exchange_all, groups
from p4reduce_contracts.wire import DEFAULT, SMALL
from rigs.ranks import MAKERS, make, odd, over_switch

pytestmark = pytest.mark.slow

Gradients = dict[str, torch.Tensor]


def same(
    switched: Sequence[Compressor],
    played: Sequence[Compressor],
    places: Sequence[Group],
    source: Callable[[int, int], Gradients],
    steps: int,
    **options: object,
) -> list[dict[str, str]]:
    """Check that means, forms, predictions and residues are the same on every rank; returns the forms, by step."""
    ranks = range(len(switched))
    forms = []
    for step, found in enumerate(over_switch(switched, source, steps, **options)):
        given = [source(rank, step) for rank in ranks]
        outcomes = exchange_all(played, given, places)
        for rank, (outcome, report) in enumerate(found):
            assert outcome.forms == outcomes[rank].forms == outcomes[0].forms
            assert report.forms == outcome.forms
            assert list(outcome.means) == list(given[rank])
            for key, mean in outcome.means.items():
                assert mean.shape == given[rank][key].shape
                assert torch.equal(mean, outcomes[0].means[key]), (step, rank, key)
                assert torch.equal(outcomes[rank].means[key], outcomes[0].means[key])
        forms.append({key: str(form) for key, form in found[0][1].forms.items()})
    for one, other in zip(switched, played, strict=True):
        residues, others = (each.state_dict().get("residues", {}) for each in (one, other))
        assert list(residues) == list(others)
        assert all(torch.equal(residue, others[key]) for key, residue in residues.items())
    return forms


@pytest.mark.parametrize(
    ("name", "world_size"),
    [*((name, size) for name in MAKERS for size in (1, 4)), ("adacomp", 8), ("adacomp, auto in levels, warm-up", 8)],
)
def test_every_compressor(name: str, world_size: int) -> None:
    """The number of ranks decides the form of the last two."""
    switched, played = ([make(name) for _ in range(world_size)] for _ in range(2))
    forms = same(switched, played, groups(world_size), odd, 4)
    if name == "adacomp" and world_size == 8:
        assert {"gather", "sum"} <= {form for step in forms for form in step.values()}


@pytest.mark.parametrize("name", ["adacomp, sum in levels", "adacomp", "scalecom", "omnireduce, 8 bits"])
def test_blocks_of_another_size(name: str) -> None:
    """The lanes' and values' blocks, and so the rounding, are those of the pipeline."""
    switched, played = ([make(name) for _ in range(3)] for _ in range(2))
    places = groups(3, columns=SMALL.columns, block_words=SMALL.block_words)
    same(switched, played, places, odd, 4, geometry=SMALL)
    if name == "omnireduce, 8 bits":
        wide = [make(name) for _ in range(3)]
        for step in range(4):
            exchange_all(wide, [odd(rank, step) for rank in range(3)], groups(3))
        assert wide[0].residue_norm() != played[0].residue_norm()


def test_ranks_with_different_calls_are_an_error() -> None:
    compressors = [make("adacomp") for _ in range(2)]
    given = [odd(0, 0), {**odd(1, 0), "small": torch.ones(3, 3)}]
    with pytest.raises(AssertionError, match="the ranks ask for different collectives"):
        exchange_all(compressors, given, groups(2))


def test_ranks_with_different_settings_are_an_error() -> None:
    """What they send looks alike, but for the collective's name."""
    compressors: list[Compressor] = [AdaComp(form="sum", levels=levels) for levels in (2, 3)]
    with pytest.raises(AssertionError, match="the ranks ask for different collectives: .*3 levels"):
        exchange_all(compressors, [odd(0, 0), odd(1, 0)], groups(2))


def test_leases_of_a_group_are_of_one_job() -> None:
    places = groups(4)
    assert [(place.rank, place.world_size) for place in places] == [(rank, 4) for rank in range(4)]
    assert {(place.columns, place.block_words) for place in places} == {(DEFAULT.columns, DEFAULT.block_words)}

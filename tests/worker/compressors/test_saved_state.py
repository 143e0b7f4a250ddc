"""A compressor's state: what is saved and what can be loaded; test_methods.py has that training goes on from it."""

from __future__ import annotations

import pytest
import torch

from p4reduce.compressors import AdaComp, Compressor
from rigs.ranks import equal, make, odd, over_switch, residue_of, through_a_file


def step_twice(compressors: list[Compressor]) -> None:
    for _ in over_switch(compressors, odd, 2):
        pass


@pytest.mark.parametrize("missing", [["scales"], ["momentum", "velocities"]])
def test_a_state_of_an_earlier_version_is_taken(missing: list[str]) -> None:
    ranks = [make("scalecom") for _ in range(2)]
    step_twice(ranks)
    state, loaded = ranks[0].state_dict(), make("scalecom")
    assert not any(state.pop(key) for key in missing)
    loaded.load_state_dict(state)
    assert equal(loaded.state_dict(), ranks[0].state_dict())


def test_the_state_is_a_copy_in_both_directions() -> None:
    one, other = ranks = [make("adacomp, momentum") for _ in range(2)]
    step_twice(ranks)
    state = one.state_dict()
    other.load_state_dict(state)
    for kept in (state["residues"], state["velocities"]):
        kept["conv"].zero_()
    for compressor in ranks:
        saved = compressor.state_dict()
        assert saved["residues"]["conv"].any() and saved["velocities"]["conv"].any()


@pytest.mark.parametrize(("name", "other"), [("adacomp", "scalecom"), ("none", "omnireduce")])
def test_the_state_of_another_compressor_is_refused(name: str, other: str) -> None:
    saved = [make(other) for _ in range(2)]
    step_twice(saved)
    compressor = make(name)
    with pytest.raises(ValueError, match=f"this is the state of {other}, not of {name}: load it into that"):
        compressor.load_state_dict(through_a_file(saved[0]))
    assert compressor.state_of("conv").steps == 0 and compressor.residue("conv") is None


def test_state_is_by_parameter_and_takes_them_in_any_order() -> None:
    def reordered(rank: int, step: int) -> dict[str, torch.Tensor]:
        return dict(reversed(odd(rank, step).items()))

    one, two = ([AdaComp(form="sum") for _ in range(2)] for _ in range(2))
    for compressors, later in ((one, odd), (two, reordered)):
        step_twice(compressors)
        for _ in over_switch(compressors, later, range(2, 4)):
            pass
    for key in ("conv", "transposed", "small"):
        assert torch.equal(residue_of(one[1], key), residue_of(two[1], key))
        assert one[0].state_of(key).scale == two[0].state_of(key).scale

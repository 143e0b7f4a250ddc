"""A compressor's state: training taken up from a checkpoint goes on as if it had not stopped, bit for bit."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

from p4reduce.compressors import AdaComp, Compressor
from rigs.ranks import MAKERS, equal, make, odd, over_switch, residue_of

WORLD_SIZE = 4
BEFORE, AFTER = 4, 4


def through_a_file(compressor: Compressor) -> dict[str, Any]:
    """The state as torch.load gives it without running code."""
    file = io.BytesIO()
    torch.save(compressor.state_dict(), file)
    file.seek(0)
    state: dict[str, Any] = torch.load(file, weights_only=True)
    return state


def means(compressors: list[Compressor], steps: range) -> list[dict[str, torch.Tensor]]:
    found = [step[0] for step in over_switch(compressors, odd, steps)]
    return [{**outcome.means} | {"forms": outcome.forms} for outcome, _ in found]


@pytest.mark.parametrize("name", MAKERS)
def test_training_resumes_from_a_saved_state_with_equal_results(name: str) -> None:
    steady = [make(name) for _ in range(WORLD_SIZE)]
    means(steady, range(BEFORE))
    saved = [through_a_file(one) for one in steady]
    resumed = [make(name) for _ in range(WORLD_SIZE)]
    for one, state in zip(resumed, saved, strict=True):
        one.load_state_dict(state)
    later = range(BEFORE, BEFORE + AFTER)
    fresh = [make(name) for _ in range(WORLD_SIZE)]
    expected, found, without = (means(each, later) for each in (steady, resumed, fresh))
    different = False
    for one, other, new in zip(expected, found, without, strict=True):
        assert one.pop("forms") == other.pop("forms")
        new.pop("forms")
        for key, mean in one.items():
            assert torch.equal(mean, other[key])
            different |= not torch.equal(mean, new[key])
    assert different == (name != "none"), "the state makes no difference: the test tests nothing"
    for one, other in zip(steady, resumed, strict=True):
        assert one.residue_norm() == other.residue_norm()
        assert one.effective_compression_rate == other.effective_compression_rate or name == "none"
        assert one.state_of("conv").steps == other.state_of("conv").steps == BEFORE + AFTER


def test_a_state_without_scales_is_taken_where_there_are_none() -> None:
    """As version 0.1 saved it."""
    ranks = [make("scalecom") for _ in range(2)]
    means(ranks, range(2))
    state = ranks[0].state_dict()
    assert state.pop("scales") == {}
    loaded = make("scalecom")
    loaded.load_state_dict(state)
    assert equal(loaded.state_dict(), ranks[0].state_dict())


def test_the_state_is_a_copy_in_both_directions() -> None:
    one, other = ranks = [make("adacomp, momentum") for _ in range(2)]
    means(ranks, range(2))
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
    means(saved, range(2))
    compressor = make(name)
    with pytest.raises(ValueError, match=f"this is the state of {other}, not of {name}: load it into that"):
        compressor.load_state_dict(through_a_file(saved[0]))
    assert compressor.state_of("conv").steps == 0 and compressor.residue("conv") is None


def test_state_is_by_parameter_and_takes_them_in_any_order() -> None:
    def reordered(rank: int, step: int) -> dict[str, torch.Tensor]:
        return dict(reversed(odd(rank, step).items()))

    one, two = ([AdaComp(form="sum") for _ in range(2)] for _ in range(2))
    for compressors, later in ((one, odd), (two, reordered)):
        for _ in over_switch(compressors, odd, 2):
            pass
        for _ in over_switch(compressors, later, range(2, 4)):
            pass
    for key in ("conv", "transposed", "small"):
        assert torch.equal(residue_of(one[1], key), residue_of(two[1], key))
        assert one[0].state_of(key).scale == two[0].state_of(key).scale

"""What holds of every method in every form, step by step over a switch: equal means, and nothing that gets lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from p4reduce.codecs.formats import levels
from p4reduce.compressors import AdaComp, Compressor, OmniReduce, Policy, ScaleCom
from p4reduce.testing.in_process import exchange_all, groups
from p4reduce_contracts.artifacts import SwitchGeometry
from p4reduce_contracts.wire.geometry import DEFAULT, SMALL
from rigs.ranks import MAKERS, ODD, equal, gaussian, make, odd, over_switch, residue_of, through_a_file

STEPS = 4
CHUNK = Policy(linear=8)
SHARED: tuple[Callable[[], Compressor], ...] = (
    lambda: AdaComp(CHUNK, "shared", value_bits=32),
    lambda: ScaleCom(CHUNK, b=1.0, value_bits=32),
)
FILTERED = "scalecom"
"""The method with a low-pass filter in its residue: a part of what is not sent is forgotten."""


def is_dense(name: str, shape: tuple[int, ...]) -> bool:
    return name == "none" or (len(shape) < 2 and not name.startswith("quantize"))


@pytest.mark.parametrize("world_size", [1, 9])
@pytest.mark.parametrize("name", MAKERS)
def test_means_are_equal_and_with_the_residues_make_up_the_gradients(name: str, world_size: int) -> None:
    """After each step: N · mean and the new residues are the old residues and the gradients, or the velocities.

    Dense parameters, and all of them in the steps of a warm-up and no later, are the mean of the gradients.
    """
    compressors = [make(name) for _ in range(world_size)]
    momentum, warmup_steps = compressors[0].momentum, compressors[0].warmup_steps
    kept = {key: torch.zeros(world_size, torch.Size(shape).numel()) for key, shape in ODD.items()}
    velocities = {key: zeros.clone() for key, zeros in kept.items()}
    sent_ever, kept_ever = 0.0, 0.0
    for step, found in enumerate(over_switch(compressors, odd, STEPS)):
        for key, shape in ODD.items():
            given = torch.stack([odd(rank, step)[key].reshape(-1) for rank in range(world_size)])
            if momentum:
                used = given.any(dim=1, keepdim=True)
                given = torch.where(used, velocities[key].lerp(given, 1 - momentum), 0)
            mean = found[0][0].means[key]
            for outcome, report in found:
                assert outcome.means[key].shape == shape and torch.equal(outcome.means[key], mean)
                assert (key in report.forms) == (step >= warmup_steps and not is_dense(name, shape))
            total = given
            if key in found[0][1].forms:
                total = kept[key] + given
                kept[key] = torch.stack([residue_of(one, key) for one in compressors])
                total = total - kept[key]
            else:
                assert compressors[0].residue(key) is None
            for rank, one in enumerate(compressors):
                velocity = one.state_of(key).velocity
                velocities[key][rank] = 0 if velocity is None else velocity
            if name != FILTERED or key not in found[0][1].forms:
                torch.testing.assert_close(world_size * mean.reshape(-1), total.sum(0), rtol=1e-4, atol=1e-3)
            sent_ever = max(sent_ever, float(mean.abs().max()) if mean.numel() else 0)
            kept_ever = max(kept_ever, float(kept[key].abs().max()) if mean.numel() else 0)
    assert sent_ever > 0 and (kept_ever > 0) == (name != "none")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "world_size", "geometry"),
    [
        *((name, size, DEFAULT) for name in MAKERS for size in (1, 4)),
        *((name, 8, DEFAULT) for name in ("adacomp", "adacomp, warm-up")),  # in two forms
        *((name, 3, SMALL) for name in ("adacomp, sum", "adacomp", "scalecom", "omnireduce, 8 bits")),
    ],
)
def test_a_step_follows_from_the_saved_state_and_the_numbers(
    name: str, world_size: int, geometry: SwitchGeometry
) -> None:
    """Over a switch, with gradients of any layout, and in one process by compressors that loaded the state of the step
    before, with plain ones: the same bits. Neither state nor gradients are written to."""
    ranks = range(world_size)
    switched = [make(name) for _ in ranks]
    saved = [through_a_file(one) for one in switched]
    places = groups(world_size, columns=geometry.columns, block_words=geometry.block_words)
    given: list[dict[str, torch.Tensor]] = []

    def source(rank: int, step: int) -> dict[str, torch.Tensor]:
        given.append(odd(rank, step))
        given[-1]["small"] = torch.stack([given[-1]["small"], -given[-1]["small"]], dim=-1)[..., 0]
        assert not any(given[-1][key].is_contiguous() for key in ("conv", "transposed", "small"))
        return given[-1]

    kept = [one.state_of("transposed") for one in switched]
    for step, found in enumerate(over_switch(switched, source, STEPS, geometry=geometry)):
        plain = [{key: tensor.contiguous() for key, tensor in odd(rank, step).items()} for rank in ranks]
        assert equal([*map(dict, given[-world_size:])], plain)
        loaded = [make(name) for _ in ranks]
        for one, state in zip(loaded, saved, strict=True):
            one.load_state_dict(state)
            if step:
                assert equal(kept.pop(0).residue, state["residues"].get("transposed"))
        outcomes = exchange_all(loaded, plain, places)
        for (outcome, report), played in zip(found, outcomes, strict=True):
            assert outcome.forms == report.forms == played.forms == outcomes[0].forms
            assert equal(outcome.means, outcomes[0].means) and equal(played.means, outcomes[0].means)
        assert all(equal(one.state_dict(), other.state_dict()) for one, other in zip(switched, loaded, strict=True))
        saved, kept = [through_a_file(one) for one in switched], [one.state_of("transposed") for one in switched]
    assert set(switched[0].state_dict()["steps"].values()) == {STEPS}


@pytest.mark.parametrize("maker", SHARED)
@pytest.mark.parametrize("order", [("small", "large"), ("large", "small")])
def test_a_small_parameter_beside_a_large_one_loses_nothing_in_the_form_shared(
    maker: Callable[[], Compressor], order: tuple[str, str]
) -> None:
    """Values of 1e-9 beside 100, which do not depend on what lies beside them; those at the leader's choice are as far
    apart."""
    sizes = {"small": 1e-9, "large": 100.0}
    compressors = [maker() for _ in range(3)]
    received = {key: torch.zeros(4, 8, dtype=torch.float64) for key in order}
    given = {key: torch.zeros(4, 8, dtype=torch.float64) for key in order}
    for step in range(6):
        gradients = [{key: sizes[key] * gaussian((4, 8), 10 * step + rank) for key in order} for rank in range(3)]
        outcome = exchange_all(compressors, gradients, groups(3))[0]
        for key in order:
            received[key] += 3 * outcome.means[key].double()
            given[key] += sum(one[key].double() for one in gradients)
    for key in order:
        left = [one.residue(key) for one in compressors]
        kept = sum(one.double() for one in left if one is not None).view(4, 8)
        assert received[key].count_nonzero() > 8
        torch.testing.assert_close(received[key] + kept, given[key], rtol=0, atol=2e-5 * sizes[key])


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_the_largest_floats_stay_finite_in_narrow_values(bits: int, ranks: int) -> None:
    """Rounded up, 3.4e38 would be beyond float32: so would the mean, what was sent, and the residue then."""
    makers: list[Callable[[], Compressor]] = [lambda: OmniReduce(ratio=1.0, value_bits=bits)]
    makers += [lambda form=form: AdaComp(form=form, value_bits=bits) for form in ("sum", "gather", "shared")]  # type: ignore[misc]
    for maker in makers:
        compressors = [maker() for _ in range(ranks)]
        given = {"w": torch.full((2, 60), 3.4e38) * torch.tensor([[1.0], [-1.0]])}
        for step in range(2):
            gradients = {"w": given["w"] if step == 0 else given["w"] * 1e-3}
            means = exchange_all(compressors, [gradients] * ranks, groups(ranks))[0].means["w"]
            assert means.isfinite().all()
            for one in compressors:
                residue = one.residue("w")
                assert residue is not None and residue.isfinite().all()
                assert step or residue.abs().max() <= 2.0**128 / levels(bits, ranks)  # one unit
            if step == 0:
                torch.testing.assert_close(means, given["w"], rtol=0, atol=2.0**128 / levels(bits, ranks))

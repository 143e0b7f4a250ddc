"""AdaComp on one rank: selection, scale, residue and counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from p4reduce.compressors import AdaComp, Form, Integers, ParameterState, Policy
from p4reduce.errors import InvalidTensorError
from rigs.ranks import as_tensor, begun, by_the_book, compress_alone, coordinates_alone, gaussian, residue_of

FC = (40, 500)  # bins of 500, one a row
CONV = (20, 10, 10, 10)  # 400 bins of 50


def with_scale(adacomp: AdaComp, scale: float, step: torch.Tensor) -> Integers:
    """What is sent in the form sum, the ranks having agreed on `scale`."""
    adacomp.commit_step({"w": replace(adacomp.state_of("w"), scale=scale)})
    message = compress_alone(adacomp, "w", step, Form.SUM).message
    assert isinstance(message, Integers)
    return message


@pytest.mark.parametrize(("shape", "size"), [((3, 7), 500), ((2, 511), 500), ((5, 3, 3, 3), 50), ((1, 1, 1), 50)])
def test_selection_is_the_one_of_the_paper(shape: tuple[int, ...], size: int) -> None:
    adacomp = AdaComp()
    residue = np.zeros(torch.Size(shape).numel())
    for seed in range(6):
        step = gaussian(shape, seed)
        signs, scale = by_the_book(residue, step.flatten().double().numpy(), size)
        sent = coordinates_alone(adacomp, "w", step)
        assert sent.scale == pytest.approx(scale, rel=1e-6)
        assert sent.indices.tolist() == np.flatnonzero(signs).tolist()
        assert sent.signs.tolist() == signs[signs != 0].tolist()
        residue = residue + step.flatten().double().numpy() - signs * scale
        np.testing.assert_allclose(residue_of(adacomp, "w").numpy(), residue, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "bins", "settled", "steps", "expected"), [(CONV, 400, 200, 150, 4.96), (FC, 40, 300, 600, 5.93)]
)
def test_steady_state_selection_of_gaussian_gradients(
    shape: tuple[int, ...], bins: int, settled: int, steps: int, expected: float
) -> None:
    """The mean number of elements selected a bin with the own scale and i.i.d. N(0, 1) gradients, over 60 000 bins of
    50 and 24 000 bins of 500, once `settled` steps have passed since the residue was 0 (the first 100 steps select
    5.13 and 8.1). What is expected comes from the same rule in float64 numpy: 4.96, and 5.90 to 5.98 by seed."""
    adacomp = AdaComp()
    generator = torch.Generator().manual_seed(5)
    selected = 0
    for step in range(settled + steps):
        sent = coordinates_alone(adacomp, "w", torch.randn(shape, generator=generator))
        if step >= settled:
            selected += len(sent.indices)
    assert selected / (bins * steps) == pytest.approx(expected, rel=0.03)


def test_effective_compression_rate_is_the_formula_of_the_paper() -> None:
    adacomp = AdaComp()
    assert adacomp.effective_compression_rate != adacomp.effective_compression_rate  # NaN: nothing sent yet
    conv = torch.zeros(2, 2, 5, 5)
    conv[0, 0, 0, :3] = torch.tensor([4.0, -4.0, 2.0])  # bin 0: |H| of 2.0 is 4, so all three are selected
    conv[1, 0, 0, 1] = 1.0  # bin 1
    assert coordinates_alone(adacomp, "conv", conv).indices.tolist() == [0, 1, 2, 51]
    assert adacomp.effective_compression_rate == 32 * 100 / (8 * 4 + 32)
    fc = torch.zeros(2, 600)
    fc[0, 7] = 3.0
    assert coordinates_alone(adacomp, "fc", fc).indices.tolist() == [7]
    assert adacomp.rate_of("fc") == 32 * 1200 / (16 * 1 + 32)
    assert adacomp.rate_of("conv") == 32 * 100 / 64
    assert adacomp.effective_compression_rate == 32 * (100 + 1200) / (64 + 48)
    coordinates_alone(adacomp, "fc", torch.zeros(2, 600))  # nothing selected: a scale of 32 bits
    assert adacomp.rate_of("fc") == 32 * 2400 / (48 + 32)


def test_values_sent_and_the_residue_add_up_to_the_gradients() -> None:
    adacomp = AdaComp()
    gradients = torch.zeros(1100, dtype=torch.float64)
    sent = torch.zeros(1100, dtype=torch.float64)
    for seed in range(200):
        step = gaussian((11, 100), seed) * (1 + seed % 7)
        gradients += step.flatten()
        sent += as_tensor(coordinates_alone(adacomp, "w", step), 1100)
    # 200 float32 roundings of |G| < 100:
    torch.testing.assert_close(sent + residue_of(adacomp, "w"), gradients, rtol=0, atol=2e-3)
    assert sent.abs().sum() > 0


@pytest.mark.parametrize("levels", [1, 4, 127, 128])
def test_with_a_shared_scale_sums_and_residues_add_up_to_the_gradients(levels: int) -> None:
    adacomp = AdaComp(form="sum", levels=levels)
    gradients = torch.zeros(1100, dtype=torch.float64)
    sent = torch.zeros(1100, dtype=torch.float64)
    for seed in range(200):
        step = gaussian((11, 100), seed) * (1 + seed % 7)
        message = with_scale(adacomp, 0.7, step)
        assert message.bound == levels and int(message.values.abs().max()) <= levels
        gradients += step.flatten()
        sent += message.values.double() * message.unit
    # here |G| grows to some thousands, for 0.7 is too little
    torch.testing.assert_close(sent + residue_of(adacomp, "w"), gradients, rtol=1e-4, atol=1e-2)
    assert sent.abs().sum() > 0


def test_with_a_shared_scale_the_residue_is_of_what_was_sent() -> None:
    adacomp = AdaComp(form="sum")
    adacomp.commit_step({"w": ParameterState(scale=3.0)})
    compressed = compress_alone(adacomp, "w", torch.tensor([[1.0, -4.0, 0.5]]), Form.SUM)
    message = compressed.message
    assert isinstance(message, Integers)
    assert message.values.tolist() == [0, -1, 0]
    assert message.unit == 3.0
    assert compressed.metadata == (4.0, 1.0)  # its own scale, and how many it selected
    assert residue_of(adacomp, "w").tolist() == [1.0, -1.0, 0.5]


def test_levels_are_multiples_of_a_part_of_the_largest_scale() -> None:
    for scale, weight in ((8.0, 2), (4.0, 4), (1.0, 4), (100.0, 1)):  # own scale 4: k = 4 / (scale / 4), at most 4
        adacomp = AdaComp(form="sum", levels=4)
        message = with_scale(adacomp, scale, torch.tensor([[1.0, -4.0, 0.5]]))
        assert message.values.tolist() == [0, -weight, 0]
        assert message.unit == scale / 4
        assert residue_of(adacomp, "w").tolist() == [1.0, -4.0 + weight * scale / 4, 0.5]
    scales = np.array([[1.0], [5.0], [3.0]], np.float32)
    assert AdaComp(form="sum", levels=4).agreed_scale(scales) == 5.0
    assert AdaComp(form="sum").agreed_scale(scales) == 3.0


def test_with_a_scale_of_zero_all_stays_in_the_residue() -> None:
    for levels in (1, 3):
        adacomp = AdaComp(form="sum", levels=levels)
        step = torch.tensor([[1.0, -4.0, 0.5]])
        with_scale(adacomp, 0.0, step)
        assert torch.equal(residue_of(adacomp, "w"), step.flatten())


def test_a_bin_of_zeros_selects_nothing() -> None:
    step = torch.zeros(2, 500)
    step[1, 3] = -2.0
    sent = coordinates_alone(AdaComp(), "w", step)
    assert (sent.indices.tolist(), sent.signs.tolist()) == ([503], [-1])
    assert sent.scale == 1.0  # the mean counts the empty bin


def test_all_zeros_and_empty_tensors_send_nothing() -> None:
    for shape in ((4, 500), (0, 500), (3, 0, 3)):
        sent = coordinates_alone(AdaComp(), "w", torch.zeros(shape))
        assert (sent.scale, len(sent.indices)) == (0.0, 0)
        message = with_scale(AdaComp(form="sum"), 1.0, torch.zeros(shape))
        assert message.values.numel() == torch.Size(shape).numel() and not message.values.any()


def test_a_gradient_of_zeros_does_not_change_the_residue() -> None:
    adacomp = AdaComp()
    coordinates_alone(adacomp, "w", gaussian((3, 400), 1))
    before = residue_of(adacomp, "w").clone()
    assert before.any()
    assert len(coordinates_alone(adacomp, "w", torch.zeros(3, 400)).indices) == 0
    assert torch.equal(residue_of(adacomp, "w"), before)
    tiny = torch.full((3, 400), 1e-30)
    assert len(coordinates_alone(adacomp, "w", tiny).indices) > 0  # the residue is sent with any other


def test_a_partial_last_bin_is_a_bin_of_its_own() -> None:
    step = torch.full((1, 501), 0.25)
    step[0, 10] = 8.0
    sent = coordinates_alone(AdaComp(), "w", step)
    assert sent.indices.tolist() == [10, 500]
    assert sent.scale == (8.0 + 0.25) / 2


def test_layout_does_not_matter() -> None:
    step = gaussian((6, 4, 3, 3), 5)
    strange = step.to(memory_format=torch.channels_last)
    strided = torch.stack([step, -step], dim=-1)[..., 0]
    transposed = step.transpose(0, 3).contiguous().transpose(0, 3)
    plain = coordinates_alone(AdaComp(), "w", step)
    for other in (strange, strided, transposed):
        assert not other.is_contiguous()
        found = coordinates_alone(AdaComp(), "w", other)
        assert found.indices.tolist() == plain.indices.tolist()
        assert found.signs.tolist() == plain.signs.tolist()
    matrix = gaussian((9, 8), 1).t()
    transposed, plain = (coordinates_alone(AdaComp(), "w", laid) for laid in (matrix, matrix.contiguous()))
    assert transposed.indices.tolist() == plain.indices.tolist()


def test_bins_follow_the_kind_of_layer() -> None:
    adacomp = AdaComp()
    assert [adacomp.length_of("w", torch.Size(shape)) for shape in [(8, 4), (8, 4, 3), (8, 4, 3, 3)]] == [500, 50, 50]
    for shape in ((), (8,)):
        assert adacomp.is_dense("w", torch.Size(shape))
    with pytest.raises(ValueError, match="the policy sends 'bias' dense"):
        adacomp.compress(begun(adacomp, "bias", torch.ones(8), Form.GATHER))


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="conv is 0; give a number of elements"):
        AdaComp(Policy(conv=0))
    with pytest.raises(ValueError, match="linear is 16385 elements, and the longest is 16384"):
        AdaComp(Policy(linear=16385))
    with pytest.raises(ValueError, match="policy is 'gather'; give a Policy, and other settings by name"):
        AdaComp("gather")
    with pytest.raises(ValueError, match="levels is 0"):
        AdaComp(levels=0)
    with pytest.raises(ValueError, match="forms auto, sum, gather, shared, not in 'ring'"):
        AdaComp(form="ring")
    with pytest.raises(ValueError, match="warmup_steps is -1"):
        AdaComp(warmup_steps=-1)
    with pytest.raises(ValueError, match="value_bits is 12"):
        AdaComp(value_bits=12)


def test_a_gradient_of_another_length_than_the_residue_is_refused() -> None:
    adacomp = AdaComp()
    coordinates_alone(adacomp, "w", torch.ones(2, 2))
    for form in Form:
        with pytest.raises(
            InvalidTensorError, match="gradient of 'w' has 9 elements, its residue 4: load the state of the"
        ):
            adacomp.compress(begun(adacomp, "w", torch.ones(3, 3), form))
    assert residue_of(adacomp, "w").numel() == 4


def test_the_scale_of_large_gradients_does_not_overflow() -> None:
    sent = coordinates_alone(AdaComp(), "w", torch.full((4, 500), 2e38))
    assert sent.scale == pytest.approx(2e38)


def test_the_initial_metadata_changes_nothing() -> None:
    adacomp = AdaComp(form="sum")
    step = gaussian((2, 600), 3)
    (scale,) = adacomp.initial_metadata(begun(adacomp, "w", step, Form.SUM))
    assert adacomp.residue("w") is None
    adacomp.commit_step({"w": ParameterState(scale=1.0)})
    assert compress_alone(adacomp, "w", step, Form.SUM).metadata[0] == scale
    assert adacomp.initial_metadata(begun(adacomp, "w", step, Form.SUM)) == ()  # asked once

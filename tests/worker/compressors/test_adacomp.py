"""AdaComp's selection, residue and counts."""

import pytest
import torch

from p4reduce.compressors import AdaComp
from p4reduce.errors import InvalidTensor

FC = (20, 500)  # bins of 500, one a row
CONV = (50, 10, 10, 10)  # 50 000 elements: bins of 50


def gaussian(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def by_the_book(residue: torch.Tensor, step: torch.Tensor, size: int) -> tuple[torch.Tensor, float]:
    """The selection as the design writes it down, one element at a time: (sent, scale)."""
    total, ahead = residue + step, residue + step + step
    starts = range(0, len(total), size)
    maxima = [max(abs(x) for x in total[at : at + size].tolist()) for at in starts]
    scale = sum(maxima) / len(maxima)
    sent = torch.zeros_like(total)
    for j in range(len(total)):
        if abs(ahead[j].item()) >= maxima[j // size] > 0:
            sent[j] = (total[j] > 0).float() * scale - (total[j] < 0).float() * scale
    return sent, scale


@pytest.mark.parametrize(("shape", "size"), [((3, 7), 500), ((2, 511), 500), ((5, 3, 3, 3), 50), ((1, 1, 1), 50)])
def test_selection_is_the_one_of_the_paper(shape: tuple[int, ...], size: int) -> None:
    adacomp = AdaComp()
    residue = torch.zeros(torch.Size(shape).numel())
    for seed in range(6):
        step = gaussian(shape, seed)
        sent, scale = by_the_book(residue, step.flatten(), size)
        out = adacomp.compress("w", step)
        assert out.local_scale == pytest.approx(scale, rel=1e-6)
        torch.testing.assert_close(out.signs * out.scale, sent)
        residue = residue + step.flatten() - sent
        torch.testing.assert_close(adacomp.residue("w"), residue)


@pytest.mark.parametrize(("shape", "size", "expected"), [(CONV, 50, 4.96), (FC, 500, 6.26)])
def test_steady_state_selection_of_gaussian_gradients(shape: tuple[int, ...], size: int, expected: float) -> None:
    adacomp = AdaComp()
    selected = []
    for seed in range(1000):
        out = adacomp.compress("w", gaussian(shape, seed))
        if seed >= 400:
            selected.append(out.selected / (out.signs.numel() / size))
        if shape is CONV and seed == 420:  # 1000 bins: enough
            break
    assert sum(selected) / len(selected) == pytest.approx(expected, rel=0.05)


def test_effective_compression_rate_is_the_formula_of_the_paper() -> None:
    adacomp = AdaComp()
    assert adacomp.effective_compression_rate != adacomp.effective_compression_rate  # NaN: nothing sent yet
    conv = adacomp.compress("conv", gaussian((4, 4, 5, 5), 1))
    fc = adacomp.compress("fc", gaussian((10, 100), 2))
    sent = 8 * conv.selected + 32 + 16 * fc.selected + 32
    assert adacomp.effective_compression_rate == pytest.approx(32 * (400 + 1000) / sent)


@pytest.mark.parametrize("shared", [None, 0.7])
def test_what_is_sent_and_the_residue_make_up_all_gradients(shared: float | None) -> None:
    adacomp = AdaComp()
    gradients = torch.zeros(1100, dtype=torch.float64)
    sent = torch.zeros(1100, dtype=torch.float64)
    for seed in range(200):
        step = gaussian((11, 100), seed) * (1 + seed % 7)
        out = adacomp.compress("w", step, shared)
        gradients += step.flatten()
        sent += out.signs.double() * out.scale
    residue = adacomp.residue("w")
    assert residue is not None
    torch.testing.assert_close(sent + residue, gradients, rtol=0, atol=2e-3)  # 200 float32 roundings of |G| < 100
    assert sent.abs().sum() > 0


def test_with_a_shared_scale_the_residue_is_of_what_was_sent() -> None:
    adacomp = AdaComp()
    out = adacomp.compress("w", torch.tensor([[1.0, -4.0, 0.5]]), scale=3.0)
    assert out.signs.tolist() == [0, -1, 0]
    assert (out.scale, out.local_scale) == (3.0, 4.0)
    residue = adacomp.residue("w")
    assert residue is not None and residue.tolist() == [1.0, -1.0, 0.5]


def test_a_scale_of_zero_keeps_everything_back() -> None:
    adacomp = AdaComp()
    step = torch.tensor([[1.0, -4.0, 0.5]])
    adacomp.compress("w", step, scale=0.0)
    residue = adacomp.residue("w")
    assert residue is not None and torch.equal(residue, step.flatten())


def test_a_bin_of_zeros_selects_nothing() -> None:
    step = torch.zeros(2, 500)
    step[1, 3] = -2.0
    out = AdaComp().compress("w", step)
    assert out.selected == 1
    assert out.signs[503] == -1
    assert out.scale == 1.0  # the mean counts the empty bin


def test_all_zeros_and_empty_tensors_send_nothing() -> None:
    for shape in ((4, 500), (0, 500), (3, 0, 3)):
        adacomp = AdaComp()
        out = adacomp.compress("w", torch.zeros(shape))
        assert (out.selected, out.scale) == (0, 0.0)
        assert out.signs.count_nonzero() == 0
        assert out.signs.numel() == torch.Size(shape).numel()


def test_a_partial_last_bin_is_a_bin_of_its_own() -> None:
    step = torch.full((1, 501), 0.25)
    step[0, 10] = 8.0
    out = AdaComp().compress("w", step)
    assert out.signs.nonzero().flatten().tolist() == [10, 500]
    assert out.scale == (8.0 + 0.25) / 2


def test_layout_does_not_matter() -> None:
    step = gaussian((6, 4, 3, 3), 5)
    strange = step.to(memory_format=torch.channels_last)
    assert not strange.is_contiguous()
    plain = AdaComp().compress("w", step)
    assert torch.equal(AdaComp().compress("w", strange).signs, plain.signs)
    assert torch.equal(
        AdaComp().compress("w", gaussian((9, 8), 1).t()).signs,
        AdaComp().compress("w", gaussian((9, 8), 1).t().contiguous()).signs,
    )


def test_bins_follow_the_kind_of_layer() -> None:
    adacomp = AdaComp()
    sizes = [adacomp.bin_size(torch.Size(shape)) for shape in [(), (8,), (8, 4), (8, 4, 3), (8, 4, 3, 3)]]
    assert sizes == [None, None, 500, 50, 50]
    with pytest.raises(ValueError, match="'bias' has fewer than two dimensions"):
        adacomp.compress("bias", torch.ones(8))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_not_finite_is_refused_by_name_and_changes_nothing(bad: float) -> None:
    adacomp = AdaComp()
    adacomp.compress("layer.weight", gaussian((2, 300), 0))
    before = adacomp.residue("layer.weight")
    step = gaussian((2, 300), 1)
    step[1, 7] = bad
    with pytest.raises(InvalidTensor, match=r"'layer\.weight' holds a NaN or an infinity"):
        adacomp.compress("layer.weight", step)
    assert adacomp.residue("layer.weight") is before


def test_other_types_and_sizes_are_refused() -> None:
    adacomp = AdaComp()
    with pytest.raises(InvalidTensor, match=r"'w' is torch\.float16"):
        adacomp.compress("w", torch.ones(2, 2, dtype=torch.float16))
    adacomp.compress("w", torch.ones(2, 2))
    with pytest.raises(InvalidTensor, match="9 elements, its residue 4"):
        adacomp.compress("w", torch.ones(3, 3))
    with pytest.raises(ValueError, match="conv_bin must be between 1 and 16384"):
        AdaComp(conv_bin=0)


def test_state_is_kept_by_parameter_and_can_be_saved() -> None:
    one, two = AdaComp(), AdaComp()
    for seed in range(3):
        one.compress("a", gaussian((3, 200), seed))
        one.compress("b", gaussian((5, 4, 3, 3), seed))
    one.set_shared_scale("a", 0.5)
    two.load_state_dict(one.state_dict())
    assert two.shared_scale("a") == 0.5
    assert two.shared_scale("b") is None
    assert two.effective_compression_rate == one.effective_compression_rate
    for key, shape in (("b", (5, 4, 3, 3)), ("a", (3, 200))):  # in another order than before
        step = gaussian(shape, 9)
        assert torch.equal(one.compress(key, step).signs, two.compress(key, step).signs)
        assert torch.equal(one.residue(key), two.residue(key))
    saved = one.state_dict()["residues"]["a"].clone()
    state = one.state_dict()
    one.compress("a", gaussian((3, 200), 10))
    assert torch.equal(state["residues"]["a"], saved)  # a copy, not a view


def test_local_scale_changes_nothing() -> None:
    adacomp = AdaComp()
    step = gaussian((2, 600), 3)
    scale = adacomp.local_scale("w", step)
    assert adacomp.residue("w") is None
    assert adacomp.compress("w", step).local_scale == scale

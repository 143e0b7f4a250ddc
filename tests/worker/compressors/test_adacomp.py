"""AdaComp on one rank: selection, scale, residue and counts."""

from __future__ import annotations

import pytest
import torch

from p4reduce.codecs.coordinates import published_bits
from p4reduce.compressors import AdaComp, ElementSparsifier, Form, Step
from rigs.ranks import begun, compress_alone, coordinates_alone

FC = (40, 500)  # bins of 500, one a row
CONV = (20, 10, 10, 10)  # 400 bins of 50


@pytest.mark.parametrize(
    ("shape", "bins", "settled", "steps", "expected", "rate"),
    [(CONV, 400, 200, 150, 4.96, 40), (FC, 40, 300, 600, 5.93, 200)],
)
def test_about_five_elements_of_a_bin_are_selected(
    shape: tuple[int, ...], bins: int, settled: int, steps: int, expected: float, rate: int
) -> None:
    """The paper's claim: its rates of 40 for bins of 50 and 200 for bins of 500 are 5 elements a bin, of 8 and 16 bits.

    Counted are those that `select` returns with the own scale and i.i.d. N(0, 1) gradients, over 60 000 bins of 50 and
    24 000 bins of 500, once `settled` steps have passed since the residue was 0 (the first 100 steps select 5.13 and
    8.1). What is expected comes from the same rule in float64 numpy: 4.96, and 5.90 to 5.98 by seed."""
    adacomp = AdaComp()
    length, generator = adacomp.policy.length("w", torch.Size(shape)), torch.Generator().manual_seed(5)
    assert length is not None and length * 32 / (published_bits(length) * 5) == rate
    selected = 0
    for step in range(settled + steps):
        gradient = torch.randn(shape, generator=generator)
        if step >= settled:
            selected += len(adacomp.select([begun(adacomp, "w", gradient, Form.GATHER)]).indices)
        coordinates_alone(adacomp, "w", gradient)
    assert selected / (bins * steps) == pytest.approx(expected, rel=0.03)


def test_effective_compression_rate_is_the_formula_of_the_paper() -> None:
    adacomp = AdaComp()
    assert adacomp.rate_of() != adacomp.rate_of()  # NaN: nothing sent yet
    conv = torch.zeros(2, 2, 5, 5)
    conv[0, 0, 0, :3] = torch.tensor([4.0, -4.0, 2.0])  # bin 0: |H| of 2.0 is 4, so all three are selected
    conv[1, 0, 0, 1] = 1.0  # bin 1
    assert coordinates_alone(adacomp, "conv", conv).indices.tolist() == [0, 1, 2, 51]
    assert adacomp.rate_of() == 32 * 100 / (8 * 4 + 32)
    fc = torch.zeros(2, 600)
    fc[0, 7] = 3.0
    assert coordinates_alone(adacomp, "fc", fc).indices.tolist() == [7]
    assert adacomp.rate_of("fc") == 32 * 1200 / (16 * 1 + 32)
    assert adacomp.rate_of("conv") == 32 * 100 / 64
    assert adacomp.rate_of() == 32 * (100 + 1200) / (64 + 48)
    coordinates_alone(adacomp, "fc", torch.zeros(2, 600))  # nothing selected: a scale of 32 bits
    assert adacomp.rate_of("fc") == 32 * 2400 / (48 + 32)


class ChoosesTheFirst(AdaComp):
    """AdaComp with another choice."""

    name = "chooses-the-first"

    select = ElementSparsifier.select

    def choose(self, step: Step, total: torch.Tensor) -> torch.Tensor:
        return torch.arange(len(total)) == 0


@pytest.mark.parametrize("form", [Form.GATHER, Form.SHARED])
def test_a_subclass_with_another_choice_makes_that(form: Form) -> None:
    message = compress_alone(ChoosesTheFirst(form=form), "w", torch.ones(4, 5), form).message
    assert len(message.data) == 9  # type: ignore[union-attr]  # one entry

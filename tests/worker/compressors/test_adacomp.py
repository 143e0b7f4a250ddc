"""AdaComp: what it selects and counts on one rank; what its forms cost over collectives, and which one "auto" takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from p4reduce.codecs.coordinates import published_bits
from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp, ElementSparsifier, Form, Step
from p4reduce.compressors.all_reduce import all_reduce_compressed
from p4reduce.testing.in_process import exchange_all, groups
from p4reduce.testing.local_group import LocalGroup
from rigs.cut_runs import slow_clock
from rigs.ranks import begun, compress_alone, coordinates_alone, gradients_of, group

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


FORMS = ("sum", "gather", "shared", "auto")


@pytest.mark.parametrize("form", FORMS)
def test_what_a_step_costs(form: str) -> None:
    """One collective; in the form sum one more before the very first, in the form shared a second each step.

    A fraction of the dense bytes: 8 lanes a word in the form sum, fewer bytes in the others."""
    adacomps = [AdaComp(form=form) for _ in range(4)]

    def rank_main(comm: Communicator) -> tuple[int, int]:
        gradients = gradients_of(comm.rank, 0, {"w": (40, 500), "bias": (40,)})
        adacomp = adacomps[comm.rank]
        all_reduce_compressed(comm, adacomp, gradients)
        first = comm.stats.copy()
        _, report = all_reduce_compressed(comm, adacomp, gradients)
        second = comm.stats - first
        assert (first.collectives, second.collectives) == (1 + (form in ("sum", "shared")), 1 + (form == "shared"))
        assert report.bytes_up == second.bytes_up
        comm.all_reduce(gradients["w"])
        return second.bytes_up, comm.stats.bytes_up - first.bytes_up - second.bytes_up

    with LocalGroup(4, clock=slow_clock) as group:
        for sparse, dense in group.run(rank_main):
            assert dense > 5 * sparse


@pytest.mark.parametrize(
    ("ranks", "shapes", "later"),
    [
        (2, {"w": (100, 500)}, {"w": "gather"}),
        (24, {"w": (8, 1, 5, 5), "v": (4, 16)}, {"w": "sum", "v": "sum"}),
        (24, {"conv": (8, 8, 5, 5), "sparse": (400, 100)}, {"conv": "sum", "sparse": "gather"}),
    ],
)
def test_few_ranks_gather_and_many_sum_each_parameter_in_lanes_unless_it_is_sparse(
    ranks: int, shapes: dict[str, tuple[int, ...]], later: dict[str, str]
) -> None:
    """All gather in the first step. `sparse` has its own rows on each rank, the other parameters are normal numbers."""
    compressors, places = [AdaComp() for _ in range(ranks)], groups(ranks)
    for step, forms in enumerate((dict.fromkeys(shapes, "gather"), later, later)):
        given = [gradients_of(rank, step, shapes) for rank in range(ranks)]
        for rank, one in enumerate(given):
            if "sparse" in one:
                one["sparse"][4 * rank + 4 :] = 0
                one["sparse"][: 4 * rank] = 0
        assert all(outcome.forms == forms for outcome in exchange_all(compressors, given, places))


def test_the_rule_counts_the_elements_of_all_ranks() -> None:
    """Three ranks and bins of 50 elements: a byte a coordinate, and half a byte an element in lanes of 4 bits."""
    shape, place = torch.Size((8, 1, 5, 5)), group(0, 3)
    for selected, form in ((100, "gather"), (101, "sum")):
        compressor = AdaComp()
        compressor.commit_step({"w": replace(compressor.state_of("w"), selected=selected)})
        assert compressor.form_of("w", shape, place) == form

"""AdaComp: what it selects and counts on one rank; what its forms cost over collectives, and which one "auto" takes."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch

from p4reduce.codecs.coordinates import published_bits
from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp, ElementSparsifier, Form, Step
from p4reduce.compressors.all_reduce import all_reduce_compressed
from p4reduce.testing.in_process import exchange_all, groups
from p4reduce.testing.local_group import LocalGroup
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
def test_how_many_collectives_a_step_takes(form: str) -> None:
    """One; in the form sum one more before the very first, in the form shared a second each step."""
    steps = 3
    adacomps = [AdaComp(form=form) for _ in range(2)]

    def rank_main(comm: Communicator) -> int:
        for step in range(steps):
            all_reduce_compressed(comm, adacomps[comm.rank], gradients_of(comm.rank, step))
        return comm.stats.collectives

    with LocalGroup(2) as group:
        assert set(group.run(rank_main)) == {steps * (2 if form == "shared" else 1) + (form == "sum")}


@pytest.mark.parametrize("form", FORMS)
def test_adacomp_sends_a_fraction_of_the_dense_bytes(form: str) -> None:
    adacomps = [AdaComp(form=form) for _ in range(4)]

    def rank_main(comm: Communicator) -> tuple[int, int]:
        gradient = torch.randn(40, 500, generator=torch.Generator().manual_seed(comm.rank))
        adacomp = adacomps[comm.rank]
        all_reduce_compressed(comm, adacomp, {"w": gradient})
        before = comm.stats.bytes_up
        _, report = all_reduce_compressed(comm, adacomp, {"w": gradient})
        sparse = comm.stats.bytes_up - before
        assert report.bytes_up == sparse
        comm.all_reduce(gradient)
        return sparse, comm.stats.bytes_up - before - sparse

    # A slow clock: on a busy machine frames would be sent again, and count.
    with LocalGroup(4, clock=lambda: time.monotonic() / 1000) as group:
        for sparse, dense in group.run(rank_main):
            assert dense > 5 * sparse  # 8 lanes a word in the form sum, fewer bytes in the others


def forms_of(ranks: int, shapes: dict[str, tuple[int, ...]], steps: int = 3) -> list[dict[str, str]]:
    """The forms of each step; `sparse` has its own rows on each rank, the other parameters are normal numbers."""
    compressors = [AdaComp() for _ in range(ranks)]
    places = groups(ranks)
    found = []
    for step in range(steps):
        given = [gradients_of(rank, step, shapes) for rank in range(ranks)]
        for rank, one in enumerate(given):
            if "sparse" in one:
                one["sparse"][4 * rank + 4 :] = 0
                one["sparse"][: 4 * rank] = 0
        outcomes = exchange_all(compressors, given, places)
        assert all(outcome.forms == outcomes[0].forms for outcome in outcomes)
        found.append({name: str(form) for name, form in outcomes[0].forms.items()})
    return found


def test_few_ranks_gather_and_many_sum_in_lanes() -> None:
    assert forms_of(2, {"w": (100, 500)}) == [{"w": "gather"}] * 3
    many = {"w": (8, 1, 5, 5), "v": (4, 16)}
    assert forms_of(24, many) == [{"w": "gather", "v": "gather"}, *[{"w": "sum", "v": "sum"}] * 2]


def test_every_parameter_has_its_own_form() -> None:
    assert forms_of(24, {"conv": (8, 8, 5, 5), "sparse": (400, 100)})[-1] == {"conv": "sum", "sparse": "gather"}


def test_the_rule_counts_the_elements_of_all_ranks() -> None:
    """Three ranks and bins of 50 elements: a byte a coordinate, and half a byte an element in lanes of 4 bits."""
    shape, place = torch.Size((8, 1, 5, 5)), group(0, 3)
    for selected, form in ((100, "gather"), (101, "sum")):
        compressor = AdaComp()
        compressor.commit_step({"w": replace(compressor.state_of("w"), selected=selected)})
        assert compressor.form_of("w", shape, place) == form

"""The form "auto": a parameter is sent as lanes where all ranks' coordinates took more bytes."""

from __future__ import annotations

from dataclasses import replace

import torch

from p4reduce.compressors import AdaComp
from p4reduce.testing.in_process import exchange_all, groups
from rigs.ranks import gradients_of, group


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

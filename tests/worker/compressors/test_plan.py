"""The choice of the wire form: the cheapest by what the last steps moved, alike on all ranks, and truly cheapest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from p4reduce.compressors import AdaComp, Compressor, Decompressed, Form, OmniReduce, Policy, ScaleCom
from p4reduce.compressors.all_reduce import BucketReport
from p4reduce.compressors.cost import Plan, plan
from p4reduce.testing.in_process import exchange_all, groups
from rigs.ranks import Source, gradients_of, over_switch
from rigs.torch_threads import one_thread  # noqa: F401 (a fixture)

CONV = {"conv": (20, 16, 5, 5), "small": (6, 1, 5, 5), "bias": (20,)}
LINEAR = {"fc": (64, 300), "out": (10, 64), "bias": (64,)}


def of(shapes: dict[str, tuple[int, ...]], sparse: float = 1.0) -> Source:
    """Normal gradients; with `sparse` < 1 only the first rows of each tensor have any."""

    def source(rank: int, step: int) -> dict[str, torch.Tensor]:
        found = gradients_of(rank, step, shapes)
        for one in found.values():
            one[max(1, round(sparse * len(one))) :] = 0
        return found

    return source


def plans(compressors: list[AdaComp], source: Source, steps: int, lane_bits: int = 0) -> list[Plan]:
    """The plan of each step, the same on all ranks."""
    places = [replace(place, lane_bits=lane_bits) for place in groups(len(compressors))]
    found = []
    for step in range(steps):
        outcomes = exchange_all(compressors, [source(rank, step) for rank in range(len(places))], places)
        assert all(outcome.plan == outcomes[0].plan for outcome in outcomes)
        found.append(outcomes[0].plan)
    return found


def test_few_ranks_gather_and_many_sum_in_lanes() -> None:
    """The union of lanes is bounded by the tensor, the coordinates grow with the ranks."""
    few = plans([AdaComp() for _ in range(2)], of({"w": (100, 500)}), 4)
    assert [one.forms["w"] for one in few] == [Form.GATHER] * 4
    many = plans([AdaComp() for _ in range(24)], of({"w": (8, 1, 5, 5), "v": (4, 16)}), 4)
    assert [one.forms for one in many[1:]] == [{"w": Form.SUM, "v": Form.SUM}] * 3
    for one in (*few[1:], *many[1:]):
        taken = one.forms["w"]
        assert taken == min((Form.SUM, Form.GATHER), key=lambda form: one.costs[form])
        assert one.bytes_down == one.costs[taken]
    wide = plans([AdaComp() for _ in range(24)], of({"w": (8, 1, 5, 5), "v": (4, 16)}), 4, lane_bits=32)
    assert wide[3].costs[Form.SUM] > many[3].costs[Form.SUM]


def test_every_parameter_has_its_own_form() -> None:
    shapes = {"conv": (8, 8, 5, 5), "sparse": (400, 100)}

    def source(rank: int, step: int) -> dict[str, torch.Tensor]:
        found = gradients_of(rank, step, shapes)
        found["sparse"][4 * rank + 4 :] = 0
        found["sparse"][: 4 * rank] = 0
        return found

    last = plans([AdaComp() for _ in range(12)], source, 4)[-1]
    assert last.forms == {"conv": Form.SUM, "sparse": Form.GATHER}
    assert last.bytes_down is not None
    assert last.bytes_down < min(last.costs[Form.SUM], last.costs[Form.GATHER])


def test_the_first_step_is_gathered_and_nothing_is_predicted() -> None:
    for adacomps in ([AdaComp() for _ in range(2)], [AdaComp(allow_shared=True) for _ in range(24)]):
        (first,) = plans(adacomps, of(CONV), 1)
        assert set(first.forms.values()) == {Form.GATHER}
        assert (first.costs, first.blocks, first.bytes_down) == ({}, (None, None), None)


@pytest.mark.parametrize("ranks", [2, 8, 16])
def test_shared_is_taken_only_where_it_is_allowed(ranks: int) -> None:
    """Where it is, it is what costs least with many ranks."""
    source = of({"w": (64, 300)})
    without = plans([AdaComp() for _ in range(ranks)], source, 5)
    assert all(Form.SHARED not in one.forms.values() for one in without)
    assert all(one.costs[Form.SHARED] < one.costs[one.forms["w"]] for one in without[1:] if ranks == 16)
    allowed = plans([AdaComp(allow_shared=True) for _ in range(ranks)], source, 5)
    assert (Form.SHARED in [one.forms["w"] for one in allowed]) == (ranks > 2)


def test_a_fixed_form_is_kept() -> None:
    for form in Form:
        for one in plans([AdaComp(form=form) for _ in range(2)], of(CONV), 3):
            assert set(one.forms.values()) == {form}


def test_a_bucket_without_compressed_parameters_has_a_plan_too() -> None:
    (one,) = plans([AdaComp()], of({"bias": (1000,)}), 1)
    assert one.forms == {}
    assert one.bytes_down is not None and 4000 < one.bytes_down < 5500
    assert plan(AdaComp(), {}, 0, groups(1)[0]).forms == {}


def test_the_first_step_does_not_count_for_the_cost_once_there_is_a_second() -> None:
    compressor = OmniReduce()
    expected = []
    for blocks in (100.0, 8.0, 4.0, 4.0):
        left = Decompressed(torch.zeros(81), torch.zeros(81), sent_bits=0, counts=(blocks,))
        compressor.commit_step({"w": compressor.state_of("w").after(left)})
        expected.append(compressor.expected_bytes("w", torch.Size((9, 9)), Form.SUM, groups(1)[0]))
    assert expected == [128 * blocks for blocks in (100, 8, 6, 5)]


def settle(compressors: list[Compressor], source: Source, steps: int) -> range:
    """Let selections become as steady as they will; return five steps more."""
    places = groups(len(compressors))
    for step in range(steps):
        exchange_all(compressors, [source(rank, step) for rank in range(len(compressors))], places)
    return range(steps, steps + 5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: AdaComp(form="sum"),
        lambda: AdaComp(form="gather"),
        lambda: AdaComp(form="shared"),
        AdaComp,
        ScaleCom,
        lambda: OmniReduce(policy=Policy(linear=64), ratio=0.1),
    ],
    ids=["sum", "gather", "shared", "auto", "scalecom", "omnireduce"],
)
@pytest.mark.slow
def test_predicted_bytes_are_those_measured(make: Callable[[], Compressor]) -> None:
    """100 000 elements, normal gradients, 4 ranks."""
    compressors = [make() for _ in range(4)]
    source = of({"w": (200, 500), "b": (200,)})
    for found in over_switch(compressors, source, settle(compressors, source, 25)):
        for _, report in found:
            assert report.predicted_bytes_down == pytest.approx(report.bytes_down, rel=0.2)
            assert report.predicted_bytes_down == found[0][1].predicted_bytes_down


def measured(form: str, ranks: int, source: Source) -> int:
    """Bytes down of five steps, once selections are steady."""
    compressors: list[Compressor] = [AdaComp(form=form) for _ in range(ranks)]
    total = 0
    for found in over_switch(compressors, source, settle(compressors, source, 20)):
        reports: list[BucketReport] = [report for _, report in found]
        assert all((report.forms, report.costs) == (reports[0].forms, reports[0].costs) for report in reports)
        total += reports[0].bytes_down
    return total


@pytest.mark.parametrize("shapes", [CONV, LINEAR], ids=["conv", "linear"])
@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
@pytest.mark.slow
def test_auto_costs_no_more_than_the_best_single_form(shapes: dict[str, tuple[int, ...]], ranks: int) -> None:
    spent = {form: measured(form, ranks, of(shapes)) for form in ("sum", "gather", "auto")}
    assert spent["auto"] <= 1.05 * min(spent["sum"], spent["gather"]), spent

"""Trainings of a few steps on random data, without a switch: what their records hold, and that they can be repeated."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from p4reduce_lab import datasets
from p4reduce_lab.study import learners
from p4reduce_lab.study import train as training
from p4reduce_lab.study.grid import GROUPS, TASKS, TRANSFORMER, VARIANTS, Run
from p4reduce_lab.study.optimizers import rate_at
from p4reduce_lab.study.results import is_current
from p4reduce_lab.study.sums import Ring

pytestmark = pytest.mark.slow

LETTERS = "abcdefgh "
STEPS = 5


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, images: datasets.Images) -> None:
    """Five steps; random images, and random text."""
    text = torch.randint(0, len(LETTERS), (900,), generator=torch.Generator().manual_seed(3))
    for name, task in list(TASKS.items()):
        monkeypatch.setitem(TASKS, name, replace(task, steps=STEPS, batch=16))
    small = {"batch": 8, "context": 8, "layers": 1, "width": 16, "heads": 2, "warmup": 2}
    monkeypatch.setitem(TASKS, TRANSFORMER, replace(TASKS[TRANSFORMER], **small))
    monkeypatch.setattr(datasets, "mnist", lambda cache: images)
    monkeypatch.setattr(datasets, "shakespeare", lambda cache: datasets.Text(text, text[:301], LETTERS))


def trained(model: str, variant: str, optimizer: str = "sgd", workers: int = 4) -> dict[str, Any]:
    run = Run(model, workers, optimizer, variant, 1)
    found = training.train(run, Path("nowhere"), None)
    assert found["id"] == run.id and is_current(found) and found["switch"] == []
    json.dumps(found)
    return found


@pytest.mark.parametrize(
    ("model", "variant", "optimizer"),
    [
        *(("mnist-mlp", variant, "sgd") for variant in GROUPS["main"]),
        ("mnist-cnn", "block-threshold", "adam"),
        ("mnist-cnn", "wire-8-feedback", "sgd"),
        ("shakespeare-lstm", "adacomp-sum", "sgd"),
        ("mnist-hdc-1", "ring-bounded-6", "sgd"),
        *((TRANSFORMER, variant, "adamw") for variant in ("dense", "adacomp-momentum", "wire-16")),
    ],
)
def test_a_training_can_be_repeated(model: str, variant: str, optimizer: str) -> None:
    found = trained(model, variant, optimizer)
    assert {**trained(model, variant, optimizer), "seconds": 0} == {**found, "seconds": 0}
    assert found["diverged_at"] is None
    assert 0 <= found[TASKS[model].measure] <= (100 if "mnist" in model else 4)
    assert (
        [step for step, _ in found["train_loss"]] == [step for step, _ in found["residue_norm"]] == list(range(STEPS))
    )
    sparse = (
        "adacomp" in variant or "block" in variant or variant == "wire-8-feedback"
    )  # from the start: ScaleCom begins with 50 dense steps
    assert bool(found["rates"]) == (sparse or variant == "wire-16")
    assert (found["residue_norm"][-1][1] > 0) == sparse
    if model == TRANSFORMER:
        assert [step for step, _ in found["test_loss"]] == list(range(STEPS - 1))
    if "ring" in variant:
        assert 0.05 < found["ring"]["bytes_a_step"] / found["ring"]["dense_bytes_a_step"] < 0.5


def test_what_one_learner_sends_is_counted_by_kind_of_layer() -> None:
    """The CNN's convolutions of 200 and 3200 weights have 68 bins of 50; the last 3 of 5 steps on 4 learners count."""
    found = learners.measure("mnist-cnn", 4, STEPS, Path("nowhere"))
    conv, times = found["conv"], 4 * 3
    assert set(found) == {"conv", "linear"} and (conv["elements"], conv["bins"]) == (3400 * times, 68 * times)
    assert conv["bins"] < conv["selected"] < conv["elements"]
    assert conv["paper_bits"] == 8 * conv["selected"] + 32 * 2 * times, "an element of a bin of 50 and a scale"
    assert conv["wire_bits"] >= 8 * conv["selected"] + 64 * 2 * times, "an element, and the header of each parameter"
    title, ranks, _, paper, wire, arrive = learners.row("conv", conv, 4)
    assert (title, ranks) == ("conv", "4") and paper.endswith(f" {32 * conv['elements'] / conv['paper_bits']:.0f}x")
    assert float(arrive.split(",")[0]) == pytest.approx(4 * float(wire.split(",")[0]), abs=0.01)


@pytest.mark.parametrize(("optimizer", "numbers"), [("sgd", 1), ("adam", 2), ("novograd", 1)])
def test_the_state_of_an_optimizer_by_parameter(optimizer: str, numbers: int) -> None:
    if optimizer == "novograd":
        pytest.importorskip("pytorch_optimizer", reason="an optional extra: pip install '.[study]'")
    found = trained("mnist-mlp-4096", "dense", optimizer)
    assert found["state_per_parameter"] == pytest.approx(numbers, abs=0.01)


@pytest.mark.parametrize("variant", ["wire-16", "wire-16-feedback", "wire-8"])
def test_fewer_bits_and_other_numbers_of_workers_train_as_dense_does(variant: str) -> None:
    dense = trained("mnist-cnn", "dense", workers=2)
    for other, off in ((trained("mnist-cnn", "dense", workers=8), 1e-3), (trained("mnist-cnn", variant), 0.3)):
        assert other["weights"] != dense["weights"]
        for (_, one), (_, another) in zip(other["train_loss"], dense["train_loss"], strict=True):
            assert one == pytest.approx(another, abs=off)


def test_a_training_that_diverges_ends_there(monkeypatch: pytest.MonkeyPatch) -> None:
    real, losses = training.gradients_of, iter([None, None, float("nan")])

    def diverging(*args: Any) -> Any:
        gradients, loss = real(*args)
        return gradients, next(losses) or loss

    monkeypatch.setattr(training, "gradients_of", diverging)
    found = trained("mnist-mlp", "adacomp-gather")
    assert found["diverged_at"] == 2 and found["accuracy"] is None
    assert [step for step, _ in found["train_loss"]] == [0, 1]


def test_a_character_is_predicted_from_those_before_it() -> None:
    model = training.make_model(TASKS[TRANSFORMER], len(LETTERS))
    signs = torch.randint(0, len(LETTERS), (3, 8), generator=torch.Generator().manual_seed(0))
    other = signs.clone()
    other[:, 5:] = (other[:, 5:] + 1) % len(LETTERS)
    one, two = (model(given).view(3, 8, -1) for given in (signs, other))
    assert torch.equal(one[:, :5], two[:, :5]) and not torch.allclose(one[:, 5:], two[:, 5:])


def test_the_norm_is_limited_and_the_rate_rises_and_falls() -> None:
    tensors = [torch.full((3,), 2.0), torch.full((1,), 2.0)]
    for limit in (1.0, 2.0):
        training.limit_norm(tensors, limit)
        assert float(torch.cat(tensors).norm()) == pytest.approx(1.0)
    rates = [rate_at(step, TASKS[TRANSFORMER]) for step in range(STEPS + 1)]
    assert rates[:3] == [0.5, 1.0, 1.0] and rates[3:] == sorted(rates[3:], reverse=True)
    assert rates[-1] == pytest.approx(0.1)


def ring_of(variant: str, given: list[dict[str, torch.Tensor]]) -> tuple[Any, dict[str, Any]]:
    ring = Ring(VARIANTS[variant], len(given))
    return ring.here(given), ring.counted()


def test_a_ring_takes_the_mean_and_counts_its_bytes() -> None:
    draw = torch.Generator().manual_seed(0)
    given = [{"weight": torch.randn(8, 4, generator=draw), "bias": torch.randn(8, generator=draw)} for _ in range(4)]
    means, counted = ring_of("ring-dense", given)
    for name, mean in means.items():
        torch.testing.assert_close(mean, torch.stack([own[name] for own in given]).mean(0))
    assert counted == {"bytes_a_step": 240, "dense_bytes_a_step": 240, "zeros": 0.0}  # 40 numbers, 3/4, twice
    small = [{name: 1e-4 * own for name, own in of_rank.items()} for of_rank in given]
    absolute, published = (ring_of(variant, small)[1] for variant in ("ring-absolute-10", "ring-published-10"))
    assert absolute["zeros"] == 1.0 and published["zeros"] < 0.2, "a fixed scale far above the numbers leaves zeros"
    assert absolute["bytes_a_step"] < published["bytes_a_step"]

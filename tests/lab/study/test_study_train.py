"""A training of a few steps on random data, without a switch: what its record holds, and that it can be repeated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from p4reduce.compressors import AdaComp
from p4reduce.testing.in_process import exchange_all, groups
from p4reduce_lab.study import data, models
from p4reduce_lab.study import train as training
from p4reduce_lab.study.grid import TASKS, Run
from p4reduce_lab.study.results import is_current
from p4reduce_lab.study.rounded import ROUNDED
from rigs.torch_threads import one_thread  # noqa: F401 (a fixture)

pytestmark = pytest.mark.slow

KEYS = {
    "id", "model", "workers", "optimizer", "variant", "seed", "settings", "parameters", "diverged_at", "train_loss",
    "residue_norm", "similarity", "rates", "state_per_parameter", "switch", "weights", "seconds",
}  # fmt: skip
LETTERS = "abcdefgh "


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five steps; random images, and random text."""
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(64, 1, 28, 28, generator=generator), torch.randint(0, 10, (64,), generator=generator)
    text = torch.randint(0, len(LETTERS), (900,), generator=generator)
    for name, task in list(TASKS.items()):
        monkeypatch.setitem(TASKS, name, replace(task, steps=5, batch=16))
    monkeypatch.setattr(data, "mnist", lambda cache: data.Images(x, y, x[:40], y[:40]))
    monkeypatch.setattr(data, "shakespeare", lambda cache: data.Text(text, text[:301], LETTERS))


def trained(run: Run) -> dict[str, Any]:
    seen: list[tuple[int, int]] = []
    found = training.train(run, Path("nowhere"), None, lambda step, steps: seen.append((step, steps)))
    assert seen == [(0, 5)]
    return found


@pytest.mark.parametrize("variant", ["dense", "adacomp-auto", "scalecom", "block-top-k-ratio"])
def test_the_record_of_a_training(variant: str) -> None:
    run = Run("mnist-mlp", 4, "sgd", variant, 1)
    found = trained(run)
    assert set(found) == KEYS | {"accuracy"}
    assert found["id"] == run.id and is_current(found)
    assert 0 <= found["accuracy"] <= 100 and found["diverged_at"] is None
    assert [step for step, _ in found["train_loss"]] == [step for step, _ in found["residue_norm"]] == list(range(5))
    assert found["parameters"] == sum(p.numel() for p in models.make("mnist-mlp").parameters())
    assert found["switch"] == []
    if variant in ("dense", "scalecom"):  # the first of which has no residues, the second not yet
        assert [step for step, _, _ in found["similarity"]] == list(range(5))
        assert all(-1 <= alone == with_residues <= 1 for _, alone, with_residues in found["similarity"])
    else:
        assert found["similarity"] == []
    sparse_from_the_start = variant not in ("dense", "scalecom")  # ScaleCom begins with 50 dense steps
    assert set(found["rates"]) == ({"all", "linear"} if sparse_from_the_start else set())
    assert (found["residue_norm"][-1][1] > 0) == sparse_from_the_start
    again = trained(run)
    assert {**again, "seconds": 0} == {**found, "seconds": 0}
    assert trained(replace(run, seed=2))["weights"] != found["weights"]


def test_a_baseline_does_not_use_the_switch() -> None:
    run = Run("mnist-mlp", 2, "sgd", "one-bit", 0)
    found = training.train(run, Path("nowhere"), "no controller is there", lambda step, steps: None)
    assert found["switch"] == [] and found["diverged_at"] is None


def test_similarity_with_residues_is_of_the_tensors_that_would_be_sent() -> None:
    """Two ranks whose residues agree and whose gradients do not, at the elements that lead once both are added up."""
    ranks = [AdaComp(form="gather"), AdaComp(form="gather")]
    kept, own = torch.full((1, 500), 0.1), torch.zeros(1, 500)
    kept[0, 0] = 1.0  # is sent, so that the rest stays
    own[0, 7:9] = 0.01
    exchange_all(ranks, [{"weight": kept}] * 2, groups(2))
    gradients = [{"weight": own}, {"weight": -own}]
    assert training._similarities(ranks, gradients) == (-1.0, 0.9976)  # of 0.11 0.11 0.1 0.1 0.1 and 0.09 0.09 0.1 ...


@pytest.mark.parametrize("variant", ["ring-dense", "ring-bounded-6", "ring-weights-16"])
def test_the_record_of_a_training_over_a_ring(variant: str) -> None:
    run = Run("mnist-hdc-1", 4, "sgd", variant, 1)
    found = trained(run)
    assert set(found) == KEYS | {"accuracy", "ring"}
    assert found["rates"] == {} and found["switch"] == []
    assert found["parameters"] == 1_149_010
    share = found["ring"]["bytes_a_step"] / found["ring"]["dense_bytes_a_step"]
    assert {"ring-dense": share == 1, "ring-weights-16": share == 0.5, "ring-bounded-6": 0.05 < share < 0.5}[variant]
    dense = trained(replace(run, variant="ring-dense"))
    assert (found["weights"] == dense["weights"]) == (variant == "ring-dense")
    assert found["train_loss"][0] == dense["train_loss"][0]


@pytest.mark.parametrize(("optimizer", "numbers"), [("sgd", 1), ("adam", 2), ("novograd", 1)])
def test_the_state_of_an_optimizer_by_parameter(optimizer: str, numbers: int) -> None:
    if optimizer == "novograd":
        pytest.importorskip("pytorch_optimizer", reason="an optional extra: pip install p4reduce[study]")
    found = trained(Run("mnist-mlp-4096", 4, optimizer, "dense", 0))
    assert found["state_per_parameter"] == pytest.approx(numbers, abs=0.01)


def test_dense_training_is_the_same_for_any_number_of_workers_but_for_rounding() -> None:
    losses = [trained(Run("mnist-cnn", workers, "adam", "dense", 0))["train_loss"] for workers in (2, 8)]
    for (_, one), (_, other) in zip(*losses, strict=True):
        assert one == pytest.approx(other, abs=1e-3)


def test_text_is_measured_by_its_loss() -> None:
    found = trained(Run("shakespeare-lstm", 2, "sgd", "adacomp-sum", 0))
    assert set(found) == KEYS | {"loss"}
    assert 1 < found["loss"] < 4
    assert set(found["rates"]) == {"all", "linear", "recurrent", "embedding"}


def test_a_training_that_diverges_ends_there(monkeypatch: pytest.MonkeyPatch) -> None:
    real = training.gradients_of

    def diverging(*args: Any) -> Any:
        gradients, loss = real(*args)
        return gradients, loss if len(seen) < 2 else float("nan")

    seen: list[int] = []
    monkeypatch.setattr(training, "gradients_of", lambda *args: (diverging(*args), seen.append(1))[0])
    found = trained(Run("mnist-mlp", 2, "sgd", "adacomp-gather", 0))
    assert found["diverged_at"] == 2 and found["accuracy"] is None
    assert [step for step, _ in found["train_loss"]] == [0, 1]


@pytest.mark.parametrize("variant", ROUNDED)
def test_the_record_of_a_training_in_fewer_bits(variant: str) -> None:
    run = Run("mnist-cnn", 4, "sgd", variant, 1)
    found = trained(run)
    assert set(found) == KEYS | {"accuracy"}
    assert found["rates"] == {} and found["switch"] == [] and found["similarity"] == []
    assert (found["residue_norm"][-1][1] > 0) == variant.endswith("feedback")
    dense = trained(replace(run, variant="dense"))
    assert found["weights"] != dense["weights"] and found["train_loss"][0] == dense["train_loss"][0]
    off = 1e-3 if "16" in variant else 0.3
    for (_, one), (_, other) in zip(found["train_loss"], dense["train_loss"], strict=True):
        assert one == pytest.approx(other, abs=off)

"""LGC and layer-parallel training: parts on values that can be worked out, and a few steps of each variant.

TracIn's closed form is what its definition gives. The records and tables, and which seeds are trained when the
command is started again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torch.nn import functional as F

import p4reduce_lab.papers.__main__ as command
from p4reduce_lab.datasets import Images
from p4reduce_lab.papers import layer_parallel, lgc
from p4reduce_lab.papers.layer_parallel import Variant, make_stages
from p4reduce_lab.papers.lgc import VARIANTS, Autoencoder, Settings, Training
from p4reduce_lab.papers.tracin import influence
from p4reduce_lab.report import write_records

TINY = Settings(batch=16, dense_steps=2, autoencoder_steps=2, compressed_steps=3)


@pytest.fixture
def coder() -> Autoencoder:
    torch.manual_seed(0)
    return Autoencoder()


def given(ranks: int = 4, k: int = 64) -> torch.Tensor:
    return 1e-3 * torch.randn(ranks, k, generator=torch.Generator().manual_seed(7))


def test_the_ring_decodes_the_mean_of_codes_in_the_values_own_scale(coder: Autoencoder) -> None:
    values = given()
    with torch.no_grad():
        kept = VARIANTS["LGC ring, residue kept"][0](values, 0, coder)
        cleared = VARIANTS["LGC ring, residue cleared"][0](values, 0, coder)
        larger = VARIANTS["LGC ring, residue kept"][0](1000 * values, 0, coder)
        same = VARIANTS["LGC ring, residue kept"][0](values[:1].expand(4, -1), 0, coder)
    assert torch.equal(kept.mean, cleared.mean) and torch.equal(cleared.own, values)
    torch.testing.assert_close(larger.mean, 1000 * kept.mean)
    torch.testing.assert_close(same.mean, same.own[0])  # equal ranks: the mean of codes is each one's


def test_a_sparse_step_moves_chosen_weights_only_and_keeps_the_rest(images: Images, coder: Autoencoder) -> None:
    training = Training(0, TINY)
    before = [p.detach().clone() for p in training.model.parameters()]
    parts = list(zip(images.x_train[:16].chunk(4), images.y_train[:16].chunk(4), strict=True))
    gradients = training.gradients(parts)
    values, error = training.sparse_step(parts, VARIANTS["exact values"][0], coder)
    assert error == 0.0 and values.shape == (4, training.chosen) and training.chosen % 16 == 0
    pairs = zip(before, training.model.parameters(), strict=True)
    moved = torch.cat([(b - p.detach()).flatten() for b, p in pairs])
    assert 0 < int((moved != 0).sum()) <= training.chosen
    sent = gradients - training.residues
    assert torch.equal(sent.any(0), (training.residues == 0).all(0) & gradients.any(0))
    torch.testing.assert_close(moved, TINY.lr * sent.mean(0), atol=1e-7, rtol=1e-4)


def test_all_variants_of_a_seed_are_recorded_and_start_from_equal_weights(images: Images) -> None:
    records = list(lgc.run(1, images, TINY))
    assert [record["variant"] for record in records] == [lgc.DENSE, *VARIANTS]
    assert all(0 <= record["accuracy"] <= 100 for record in records)
    errors = {record["variant"]: record["error"] for record in records}
    assert errors[lgc.DENSE] is None and errors["exact values"] == 0 < errors["8 bits"] < errors["signs"]
    assert list(lgc.run(1, images, TINY)) == records


SMALL_NET = layer_parallel.Settings(images=32, batch=16, blocks=4, width=8)


def gradients_of_stages(training: layer_parallel.Training) -> list[torch.Tensor | None]:
    return [parameter.grad for parameter in training.stages.parameters()]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_stages_are_the_same_network(count: int) -> None:
    torch.manual_seed(1)
    whole = make_stages(1, SMALL_NET)
    torch.manual_seed(1)
    stages = make_stages(count, SMALL_NET)
    x = torch.randn(3, 1, 28, 28)
    assert len(stages) == count and torch.equal(whole(x), stages(x))


def test_a_serial_step_is_plain_back_propagation_and_stores_the_inputs(images: Images) -> None:
    training = layer_parallel.Training(Variant("s", 2), 0, images, SMALL_NET)
    indexes = torch.arange(16, 32)
    training.serial_step(indexes)
    loss = F.cross_entropy(training.stages(images.x_train[16:32]), images.y_train[16:32])
    wanted = torch.autograd.grad(loss, list(training.stages.parameters()))
    for found, right in zip(gradients_of_stages(training), wanted, strict=True):
        torch.testing.assert_close(found, right)
    assert torch.equal(training.lam[0][16:], training.stages[0](images.x_train[16:32]).detach())
    assert not training.lam[0][:16].any()


@pytest.mark.parametrize(("multipliers", "times"), [(False, 1), (True, 2)])
def test_a_stage_gets_the_true_gradient_a_pass_later(images: Images, multipliers: bool, times: int) -> None:
    """After a whole step of lam, the gap to the first stage pulls it along the labels' gradient; so does kappa."""
    settings = layer_parallel.Settings(images=32, batch=32, blocks=4, width=8, lam_rate=1.0)
    training = layer_parallel.Training(Variant("spp", 2, multipliers=multipliers), 0, images, settings)
    everything = torch.arange(32)
    training.serial_step(everything)
    wanted = gradients_of_stages(training)
    training.optimizer.zero_grad()
    training.parallel_step(everything)
    first = list(training.stages[0].parameters())
    assert all(float(parameter.grad.abs().max()) < 1e-6 for parameter in first)  # lam is what the stage gives
    training.optimizer.zero_grad()
    training.parallel_step(everything)
    for parameter, right in zip(first, wanted, strict=False):
        torch.testing.assert_close(parameter.grad, times * right, rtol=1e-3, atol=1e-6)


def test_all_variants_of_layer_parallel_training_are_recorded(images: Images) -> None:
    records = list(layer_parallel.run(1, images, SMALL_NET))
    assert [record["variant"] for record in records] == list(layer_parallel.VARIANTS)
    assert all(0 <= record["accuracy"] <= 100 for record in records)
    assert list(layer_parallel.run(1, images, SMALL_NET)) == records


def test_a_diverged_training_is_recorded_as_diverged(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_parallel, "VARIANTS", {"mad": Variant("sp", 2)})
    (found,) = layer_parallel.run(0, images, layer_parallel.Settings(images=32, batch=16, blocks=4, width=8, lr=1e30))
    assert found["accuracy"] is None


RATES = (0.1, 0.05)


@pytest.fixture
def bench() -> tuple:
    torch.manual_seed(0)
    checkpoints = [(rate, nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 10))) for rate in RATES]
    return checkpoints, torch.randn(12, 6), torch.arange(12) % 10, torch.randn(5, 6), torch.arange(5)


def test_the_closed_form_is_the_sum_of_products_of_gradients(bench: tuple) -> None:
    checkpoints, images, labels, test_images, test_labels = bench

    def gradient(model: nn.Module, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(model(image[None]), label[None])
        return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model[-1].parameters()))])

    expected = [
        sum(
            rate * float(gradient(model, *one) @ gradient(model, *test))
            for rate, model in checkpoints
            for test in zip(test_images, test_labels, strict=True)
        )
        for one in zip(images, labels, strict=True)
    ]
    assert influence(*bench) == pytest.approx(expected, rel=1e-5, abs=1e-7)


def record(trial: str, variant: str, seed: int, accuracy: float | None, error: float | None = None) -> command.Record:
    return {"trial": trial, "variant": variant, "seed": seed, "settings": {}, "accuracy": accuracy, "error": error}


def test_the_kept_records_fill_the_tables() -> None:
    found = command.tables(command.read())
    assert {name: len(table.rows) for name, table in found.items()} == {"lgc": 9, "layer-parallel": 9}
    assert ["signs", "1", "95.16 (94.96 to 95.33)", "0.28"] in found["lgc"].rows


def test_only_missing_seeds_are_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []

    def run(seed: int, images: Images) -> Iterator[command.Record]:
        trained.append(seed)
        yield record("lgc", "dense", seed, 97.0)

    def printed(*arguments: str) -> str:
        return CliRunner().invoke(command.main, arguments, catch_exceptions=False).output

    nothing = torch.zeros(1)
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "PAPERS", {"lgc": run})
    monkeypatch.setattr(command.datasets, "mnist", lambda cache: Images(nothing, nothing, nothing, nothing))
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    (tmp_path / "docs").mkdir()
    write_records(tmp_path / command.RECORDS, [record("lgc", "dense", 1, 96.0)])
    assert "| dense |  | 96.00 (1 seed) |  |" in printed("--report-only")
    assert trained == []
    for _ in range(2):
        assert "| dense |  | 96.67 (96.00 to 97.00) |  |" in printed()
    assert trained == [0, 2]

"""Layer-parallel training: its gradients against those of the whole network, and a few steps of each variant."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from p4reduce_lab.datasets import Images
from p4reduce_lab.papers import layer_parallel
from p4reduce_lab.papers.layer_parallel import VARIANTS, Settings, Training, Variant, make_stages

TINY = Settings(images=32, batch=16, blocks=4, width=8)


def gradients(training: Training) -> list[torch.Tensor | None]:
    return [parameter.grad for parameter in training.stages.parameters()]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_stages_are_the_same_network(count: int) -> None:
    torch.manual_seed(1)
    whole = make_stages(1, TINY)
    torch.manual_seed(1)
    stages = make_stages(count, TINY)
    x = torch.randn(3, 1, 28, 28)
    assert len(stages) == count and torch.equal(whole(x), stages(x))


def test_a_serial_step_is_plain_back_propagation_and_stores_the_inputs(images: Images) -> None:
    training = Training(Variant("s", 2), 0, images, TINY)
    indexes = torch.arange(16, 32)
    training.serial_step(indexes)
    loss = F.cross_entropy(training.stages(images.x_train[16:32]), images.y_train[16:32])
    wanted = torch.autograd.grad(loss, list(training.stages.parameters()))
    for found, right in zip(gradients(training), wanted, strict=True):
        torch.testing.assert_close(found, right)
    assert torch.equal(training.lam[0][16:], training.stages[0](images.x_train[16:32]).detach())
    assert not training.lam[0][:16].any()


@pytest.mark.parametrize(("multipliers", "times"), [(False, 1), (True, 2)])
def test_a_stage_gets_the_true_gradient_a_pass_later(images: Images, multipliers: bool, times: int) -> None:
    """After a whole step of lam, the gap to the first stage pulls it along the labels' gradient; so does kappa."""
    settings = Settings(images=32, batch=32, blocks=4, width=8, lam_rate=1.0)
    training = Training(Variant("spp", 2, multipliers=multipliers), 0, images, settings)
    everything = torch.arange(32)
    training.serial_step(everything)
    wanted = gradients(training)
    training.optimizer.zero_grad()
    training.parallel_step(everything)
    first = list(training.stages[0].parameters())
    assert all(float(parameter.grad.abs().max()) < 1e-6 for parameter in first)  # lam is what the stage gives
    training.optimizer.zero_grad()
    training.parallel_step(everything)
    for parameter, right in zip(first, wanted, strict=False):
        torch.testing.assert_close(parameter.grad, times * right, rtol=1e-3, atol=1e-6)


def test_in_the_control_the_last_stage_alone_learns_and_inputs_stay(images: Images) -> None:
    training = Training(Variant("sp", 2, control=True), 0, images, TINY)
    training.serial_step(torch.arange(16))
    stored = training.lam[0].clone()
    training.optimizer.zero_grad()
    training.parallel_step(torch.arange(16))
    assert all(parameter.grad is None for parameter in training.stages[0].parameters())
    assert all(parameter.grad is not None for parameter in training.stages[1].parameters())
    assert torch.equal(training.lam[0], stored)


def test_all_variants_are_recorded(images: Images) -> None:
    records = list(layer_parallel.run(1, images, TINY))
    assert [record["variant"] for record in records] == list(VARIANTS)
    assert all(0 <= record["accuracy"] <= 100 for record in records)
    assert list(layer_parallel.run(1, images, TINY)) == records


def test_a_diverged_training_is_recorded_as_diverged(images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_parallel, "VARIANTS", {"mad": Variant("sp", 2)})
    (found,) = layer_parallel.run(0, images, Settings(images=32, batch=16, blocks=4, width=8, lr=1e30))
    assert found["accuracy"] is None

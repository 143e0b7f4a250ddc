"""TracIn: the closed form is what its definition gives."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from p4reduce_lab.papers.tracin import influence

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

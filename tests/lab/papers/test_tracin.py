"""TracIn: the closed form, and that it equals captum's."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from p4reduce_lab.papers.tracin import influence

RATES = (0.1, 0.05)


@pytest.fixture
def bench() -> tuple:
    """Two checkpoints of a small model, 12 images and 5 test images, with labels."""
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


@pytest.mark.filterwarnings("ignore:Input Tensor 0 did not already require gradients")  # of captum's own making
def test_it_equals_captum(bench: tuple, tmp_path: Path) -> None:
    captum = pytest.importorskip("captum.influence", reason="captum is an optional extra: pip install p4reduce[captum]")
    checkpoints, images, labels, test_images, test_labels = bench
    files = []
    for index, (rate, model) in enumerate(checkpoints):
        files.append(str(tmp_path / f"{index}.pt"))
        torch.save({"model": model.state_dict(), "rate": rate}, files[-1])

    def load(model: nn.Module, path: str) -> float:
        saved = torch.load(path, weights_only=True)
        model.load_state_dict(saved["model"])
        return saved["rate"]

    trac_in = captum.TracInCP(
        checkpoints[0][1],
        torch.utils.data.TensorDataset(images, labels),
        files,
        load,
        layers=["2"],
        loss_fn=nn.CrossEntropyLoss(reduction="sum"),
        batch_size=4,
        sample_wise_grads_per_batch=True,
    )
    scores = trac_in.influence((test_images, test_labels)).sum(0).double()
    for (_, model), path in zip(checkpoints, files, strict=True):  # captum loaded each of them into the first model
        load(model, path)
    assert torch.allclose(influence(*bench), scores, rtol=1e-6, atol=1e-6)

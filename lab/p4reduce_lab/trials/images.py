"""MNIST for the trials: batches in an order that the seed gives, and the accuracy on the test images."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from p4reduce_lab.study.data import Images


def batches(images: Images, batch: int, steps: int, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield images and labels of each step, in a new order each pass; a last part of a batch is left out."""
    generator = torch.Generator().manual_seed(1000 + seed)
    left = steps
    while left:
        order = torch.randperm(len(images.y_train), generator=generator)
        for indexes in torch.split(order, batch)[: min(left, len(order) // batch)]:
            yield images.x_train[indexes], images.y_train[indexes]
            left -= 1


@torch.no_grad()
def accuracy(model: nn.Module, images: Images) -> float:
    """Return the accuracy on the test images, in %."""
    parts = zip(torch.split(images.x_test, 1000), torch.split(images.y_test, 1000), strict=True)
    right = sum(int((model(x).argmax(1) == labels).sum()) for x, labels in parts)
    return round(100 * right / len(images.y_test), 2)

"""Fixtures of the lab's tests."""

import pytest
import torch

from p4reduce_lab.datasets import Images


@pytest.fixture
def images() -> Images:
    """Random images, which stand for MNIST."""
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(64, 1, 28, 28, generator=generator), torch.randint(0, 10, (64,), generator=generator)
    return Images(x, y, x[:40], y[:40])

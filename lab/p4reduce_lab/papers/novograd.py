"""NovoGrad: an optimizer with one second moment for each layer (Ginsburg et al., arXiv 1905.11286; text unverified)."""

from __future__ import annotations

from typing import Final

import torch
from torch import nn

LEARNING_RATES: Final = {"mnist-mlp": 0.03, "mnist-mlp-4096": 0.1}
"""Learning rates by the study's model: of three to five that were tried on seed 0, the best."""


def novograd(module: nn.Module, model: str) -> torch.optim.Optimizer:
    """Make the optimizer of `module`, with the learning rate of `model`. Raises ImportError without its package."""
    try:
        from pytorch_optimizer import NovoGrad
    except ImportError as error:
        raise ImportError("NovoGrad is in an optional package; in the checkout: pip install '.[study]'") from error
    return NovoGrad(module.parameters(), lr=LEARNING_RATES[model])

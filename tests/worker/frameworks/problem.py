"""The model and the data of the scripts in this folder, and the file that the tests compare."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset


def network() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))


def dataset() -> TensorDataset:
    generator = torch.Generator().manual_seed(6)
    return TensorDataset(torch.randn(64, 20, generator=generator), torch.randn(64, 10, generator=generator))


def write(model: nn.Module, rank: int) -> None:
    """Write the weights after training to FILE.RANK; FILE is the script's first argument."""
    weights = {name: weight.detach().reshape(-1).tolist() for name, weight in model.state_dict().items()}
    Path(f"{sys.argv[1]}.{rank}").write_text(json.dumps(weights))

"""Ray Train with two workers, on a Ray of this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import ray
import ray.train
import ray.train.torch
import torch
from problem import dataset, network, write
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from torch.utils.data import DataLoader


def train() -> None:
    assert torch.distributed.get_backend() == "p4reduce"
    plain = network()
    model = ray.train.torch.prepare_model(plain)
    loader = ray.train.torch.prepare_data_loader(DataLoader(dataset(), batch_size=8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for inputs, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), labels).backward()
        optimizer.step()
    write(plain, ray.train.get_context().get_world_rank())


def main() -> None:
    folder, file = str(Path(__file__).parent), sys.argv[1]

    def train_here() -> None:  # what it needs travels with it
        sys.argv[1:] = [file]
        sys.path.insert(0, folder)
        train()

    ray.init(address="local", num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1")
    torch_config = TorchConfig(backend="p4reduce")
    scaling_config = ScalingConfig(num_workers=2)
    run_config = RunConfig(storage_path=str(Path(file).parent))
    TorchTrainer(train_here, torch_config=torch_config, scaling_config=scaling_config, run_config=run_config).fit()
    ray.shutdown()


if __name__ == "__main__":
    main()

"""Lightning's Fabric, started by torchrun."""

from __future__ import annotations

import os

import torch
from lightning.fabric import Fabric
from lightning.fabric.strategies import DDPStrategy
from problem import dataset, network, write
from torch.utils.data import DataLoader


def main() -> None:
    strategy = DDPStrategy(process_group_backend="p4reduce")
    fabric = Fabric(accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy=strategy)
    fabric.launch()
    assert torch.distributed.get_backend() == "p4reduce"
    plain = network()
    model, optimizer = fabric.setup(plain, torch.optim.SGD(plain.parameters(), lr=0.05))
    loader = fabric.setup_dataloaders(DataLoader(dataset(), batch_size=8))
    for inputs, labels in loader:
        optimizer.zero_grad()
        fabric.backward(torch.nn.functional.mse_loss(model(inputs), labels))
        optimizer.step()
    write(plain, fabric.global_rank)


if __name__ == "__main__":
    main()
    torch.distributed.destroy_process_group()

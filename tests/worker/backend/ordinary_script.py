"""A script as PyTorch's own examples have it: nothing in it is p4reduce's but the name of the backend."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class ToyModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net1 = nn.Linear(10, 50)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(50, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net2(self.relu(self.net1(x)))


def main() -> None:
    dist.init_process_group("p4reduce")
    rank = int(os.environ["RANK"])
    torch.manual_seed(rank)
    data = TensorDataset(
        torch.randn(256, 10, generator=torch.Generator().manual_seed(1)),
        torch.randn(256, 5, generator=torch.Generator().manual_seed(2)),
    )
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = DDP(ToyModel())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loss_of = nn.MSELoss()
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss_of(model(inputs), labels).backward()
            optimizer.step()
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    rows = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, flat)
    assert all(torch.equal(row, flat) for row in rows)
    print("weights equal on all ranks")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

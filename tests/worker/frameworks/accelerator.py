"""Accelerate, started by torchrun; its own arguments take no other backend than gloo on the CPU."""

from __future__ import annotations

import torch
import torch.distributed as dist
from accelerate import Accelerator
from problem import dataset, network, write
from torch.utils.data import DataLoader


def main() -> None:
    dist.init_process_group("p4reduce")
    accelerator = Accelerator(cpu=True)
    plain = network()
    model, optimizer, loader = accelerator.prepare(
        plain, torch.optim.SGD(plain.parameters(), lr=0.05), DataLoader(dataset(), batch_size=8)
    )
    assert isinstance(model, torch.nn.parallel.DistributedDataParallel)
    for inputs, labels in loader:
        with accelerator.accumulate(model):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
    assert accelerator.gather(loss).shape == (accelerator.num_processes,)
    assert dist.get_backend() == "p4reduce"
    write(plain, accelerator.process_index)


if __name__ == "__main__":
    main()
    dist.destroy_process_group()

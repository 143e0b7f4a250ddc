"""DDP without a framework, with a checkpoint after each step; started by torchrun or Slurm.

With ENDS_ONCE set rank 1 ends at the third step of the first attempt.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from problem import dataset, network, write
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler


def main() -> None:
    dist.init_process_group("p4reduce")
    rank, checkpoint = dist.get_rank(), Path(f"{sys.argv[1]}.pt")
    model = network()
    attempt, done = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")), 0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        done = saved["steps"]
    ddp = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    data = dataset()
    for step, (inputs, labels) in enumerate(DataLoader(data, batch_size=8, sampler=DistributedSampler(data))):
        if step < done:
            continue
        if step == 2 and attempt == 0 and "ENDS_ONCE" in os.environ:
            dist.barrier()  # the checkpoint of step 1 is complete
            if rank == 1:
                os._exit(1)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(ddp(inputs), labels).backward()
        optimizer.step()
        if rank == 0:
            torch.save({"model": model.state_dict(), "steps": step + 1}, checkpoint)
    assert attempt == ("ENDS_ONCE" in os.environ) and done == 2 * attempt
    write(model, rank)


if __name__ == "__main__":
    main()
    dist.destroy_process_group()

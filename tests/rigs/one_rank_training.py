"""Two steps of DDP with AdaComp, as the only rank of the job in the environment."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import p4reduce

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = DistributedDataParallel(torch.nn.Linear(100, 200))
with p4reduce.join(timeout_s=600) as comm:
    state = p4reduce.DDPState(comm, p4reduce.AdaComp(), module=model)
    model.register_comm_hook(state, p4reduce.ddp_hook)
    for _ in range(2):
        model(torch.randn(8, 100)).sum().backward()
    state.close()
dist.destroy_process_group()

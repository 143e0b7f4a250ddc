"""One rank of two that train with a GradScaler; test_ddp_nonfinite.py starts it: PORT_OF_SWITCH STORE.

Prints, for gloo and for the switch, which steps were skipped and the weights at the end.
"""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import p4reduce
from p4reduce.testing.udp_switch import connect

STEPS = 24
port, store, rank = int(sys.argv[1]), sys.argv[2], int(os.environ["RANK"])
dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)


def train(over_switch: bool) -> dict[str, object]:
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 3)), bucket_cap_mb=0.001)
    if over_switch:
        state = p4reduce.DDPState(connect(port, rank, 2), module=model, on_nonfinite="skip")
        model.register_comm_hook(state, p4reduce.ddp_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    # So large that gradients are infinite: on both ranks, then, as it backs off and grows again, on rank 1 alone.
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=3)
    skipped = []
    data = torch.Generator().manual_seed(rank)
    for step in range(STEPS):
        optimizer.zero_grad()
        x = torch.randn(16, 20, generator=data) * (1 + 30 * rank)
        scaler.scale(model(x).square().mean()).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        if scaler.get_scale() < before:
            skipped.append(step)
    if over_switch:
        assert state.skipped_steps == len(skipped)
        state.close()
        state.comm.close()
    return {"skipped": skipped, "weights": torch.cat([p.detach().reshape(-1) for p in model.parameters()]).tolist()}


print(json.dumps({"gloo": train(False), "switch": train(True)}))
dist.destroy_process_group()

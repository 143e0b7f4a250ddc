"""One all_reduce of four bytes a rank by the backend p4reduce; arguments: a file for the store, RANK, WORLD_SIZE."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

from p4reduce.launch import launch

store, rank, size = sys.argv[1:]
launch.DEFAULT_CONTROLLER = "127.0.0.1:9"  # where none is
dist.init_process_group("p4reduce", init_method=f"file://{store}", rank=int(rank), world_size=int(size))
gradient = torch.full((1000,), float(rank) + 1)
dist.all_reduce(gradient)
assert gradient.unique().tolist() == [sum(range(1, int(size) + 1))]
dist.destroy_process_group()

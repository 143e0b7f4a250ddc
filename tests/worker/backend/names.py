"""A rank that makes process groups by all texts that name the backend; argument: a file for the store."""

from __future__ import annotations

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store, limit = dist.FileStore(sys.argv[1], size), timedelta(seconds=60)
texts = "p4reduce", "P4REDUCE", "cpu:p4reduce", "cpu:p4reduce,cuda:gloo", "cpu:gloo,cuda:p4reduce"
for text in texts:
    dist.init_process_group(text, store=dist.PrefixStore(text, store), rank=rank, world_size=size, timeout=limit)
    assert dist.group.WORLD is not None
    numbers = torch.full((1000,), rank + 1.0)
    dist.all_reduce(numbers)
    assert numbers.unique().tolist() == [sum(range(1, size + 1))], text
    dist.group.WORLD.monitored_barrier(limit, wait_all_ranks=True)
    dist.destroy_process_group()
print("summed under each name")

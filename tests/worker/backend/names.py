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


def init(text: str) -> None:
    dist.init_process_group(text, store=dist.PrefixStore(text, store), rank=rank, world_size=size, timeout=limit)


for text in texts:
    init(text)
    for group in (dist.group.WORLD, dist.new_group()):
        numbers = torch.full((1000,), rank + 1.0)
        dist.all_reduce(numbers, group=group)
        assert numbers.unique().tolist() == [sum(range(1, size + 1))], text
        assert (group.join().stats.collectives == 0) == text.startswith("cpu:gloo"), text
        group.monitored_barrier(limit, wait_all_ranks=True)
    dist.destroy_process_group()
init("cpu:p4reduce,cuda:nccl")
try:
    dist.all_reduce(torch.ones(1000))
except dist.DistBackendError as error:
    assert (
        'torch makes no nccl for cuda; name p4reduce alone, and make another group by new_group(backend="nccl")'
        in str(error)
    ), error
else:
    raise AssertionError("NCCL was left out without an error")
dist.destroy_process_group()
print("summed under each name")

"""A rank that makes process groups by all texts that name the backend; argument: a file for the store."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
store, limit = dist.FileStore(sys.argv[1], size), timedelta(seconds=60)
made: list[dist.ProcessGroupGloo] = []


def make_counted(*arguments: Any) -> dist.ProcessGroupGloo:
    """Make a backend whose collectives are counted."""
    made.append(dist.ProcessGroupGloo(*arguments))
    return made[-1]


def count() -> int:
    return sum(each._get_sequence_number_for_group() for each in made)


dist.Backend.register_backend("counted", make_counted, devices=["cpu"])
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
given = torch.full((1000,), rank + 1.0)
for order in ("cpu:counted,cuda:p4reduce", "cuda:p4reduce,cpu:counted"):  # as "cpu:p4reduce,cuda:nccl" for the CPU
    init(order)
    for group in (dist.group.WORLD, dist.new_group(backend=order)):
        before, numbers, rows = count(), given.clone(), torch.zeros(size, 1000)
        dist.all_reduce(numbers, group=group)
        dist.all_gather_into_tensor(rows.view(-1), given, group=group)
        dist.all_to_all(list(rows.clone()), [given] * size, group=group)
        if rank < 2:
            dist.send(given, 1, group=group) if rank == 0 else dist.recv(rows[0], 0, group=group)
        assert numbers.unique().tolist() == [sum(range(1, size + 1))] and rows[0].unique().tolist() == [1]
        assert count() - before >= 3
        assert group.join().stats.collectives == 0
    some = dist.new_group([1, 0], backend=order)
    if rank < 2:  # ranks that are in other groups than others make them all the same
        dist.all_reduce(given.clone(), group=some)
    for group in (dist.new_group(backend=order), dist.new_group(backend="gloo")):
        numbers = given.clone()
        dist.all_reduce(numbers, group=group)
        assert numbers.unique().tolist() == [sum(range(1, size + 1))]
    if rank < 2:
        dist.destroy_process_group(some)
    dist.destroy_process_group()
print("summed under each name")

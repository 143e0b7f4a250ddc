"""A rank that makes process groups and ends them, one after the other, in one process.

First all groups have one store, then each has its own, of which some are gloo's; then torch makes a server in rank
0 for each, at one address.
"""

from __future__ import annotations

import gc
import os
import socket
import time
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist

CYCLES = 6
LIMIT = timedelta(seconds=60)


def use(cycle: int) -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.full((1000,), float(rank + cycle))
    dist.all_reduce(mine)
    assert mine.tolist() == [sum(each + cycle for each in range(size))] * 1000
    pair = dist.new_group([0, 1])
    if rank < 2:
        mine = torch.full((5,), float("nan") if cycle == 3 else rank + cycle)
        dist.all_reduce(mine, group=pair)
        assert mine.isnan().all() if cycle == 3 else mine.tolist() == [1 + 2 * cycle] * 5
    objects: list[object] = [None] * size
    dist.all_gather_object(objects, (cycle, rank))
    assert objects == [(cycle, each) for each in range(size)]


def fork() -> None:
    """Fork, as a DataLoader does."""
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)


def main() -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    kept = dist.TCPStore(host, port, size, rank == 0, LIMIT)
    for cycle in range(CYCLES):  # in a store that is kept gloo finds the addresses of its first group
        run_cycle(kept, "p4reduce", cycle)
    kept.set(f"ended {rank}", "")
    kept.wait([f"ended {each}" for each in range(size)])
    assert kept.num_keys() < 10 + size, kept.list_keys()  # of an earlier group only its name
    for cycle in range(CYCLES):
        port = int(kept.get(str(cycle))) if rank else 0
        store = dist.TCPStore(host, port, size, is_master=rank == 0, wait_for_workers=False)
        if rank == 0:
            kept.set(str(cycle), str(store.port))
        run_cycle(store, "gloo" if cycle in (1, 4) else "p4reduce", cycle)
    if rank == 0:
        kept.set("free", str(free_port()))
    port = int(kept.get("free"))
    for cycle in range(CYCLES):
        run_cycle(f"tcp://{host}:{port}", "p4reduce", cycle)


def free_port() -> int:
    with socket.create_server(("", 0)) as server:
        return int(server.getsockname()[1])


def run_cycle(meeting: dist.Store | str, backend: str, cycle: int) -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    where = {"init_method" if isinstance(meeting, str) else "store": meeting}
    dist.init_process_group(backend, **where, rank=rank, world_size=size, timeout=LIMIT)
    use(cycle)
    if cycle % 2:
        fork()
    group = weakref.ref(dist.group.WORLD)
    dist.destroy_process_group()
    until = time.monotonic() + LIMIT.total_seconds()
    while group() is not None and time.monotonic() < until:  # a thread that has served it may not have ended yet
        time.sleep(0.01)
    assert group() is None, f"something holds the group: {gc.get_referrers(group())}"


main()

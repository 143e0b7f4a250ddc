"""The transformer's training with torch's own communication hooks: DDP over gloo, a process a rank."""

# No `from __future__ import annotations`: torch reads a hook's annotations as types.
import json
import multiprocessing
import os
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.multiprocessing.spawn import start_processes
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from p4reduce_lab.addresses import LOOPBACK, reserved_port
from p4reduce_lab.measured_training import tcp_counts, tcp_since
from p4reduce_lab.study import optimizers
from p4reduce_lab.study.grid import TASKS, VARIANTS, WARMUP_STEPS, Run
from p4reduce_lab.study.train import LOSS_POINTS, data_of, make_model, record_of, spread

POWERSGD_RANK = 2
_ONE_BUCKET_MB = 100
_TIMEOUT = timedelta(seconds=300)


def train(run: Run, cache: Path) -> dict[str, Any]:
    """Train once, in a process for each rank; return rank 0's results."""
    # not forked from this process, which may have gRPC's threads
    multiprocessing.get_context("forkserver").set_forkserver_preload(["torch._dynamo", __name__])
    with tempfile.TemporaryDirectory() as folder, reserved_port() as port:
        out = Path(folder, "result.json")
        arguments = (run, TASKS[run.model], cache, port, out)  # a task as this process has it
        start_processes(_rank, arguments, run.workers, start_method="forkserver")  # type: ignore[no-untyped-call]
        result: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return result


def _rank(rank: int, run: Run, task: Any, cache: Path, port: int, out: Path) -> None:
    torch.set_num_threads(1)
    TASKS[run.model] = task
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    there = f"tcp://{LOOPBACK}:{port}"
    dist.init_process_group("gloo", there, rank=rank, world_size=run.workers, timeout=_TIMEOUT)
    try:
        result = _train(rank, run, cache)
    finally:
        dist.destroy_process_group()
    if rank == 0:
        out.write_text(json.dumps(result), encoding="utf-8")


def _train(rank: int, run: Run, cache: Path) -> dict[str, Any]:
    started = time.monotonic()
    torch.manual_seed(run.seed)
    task, variant = TASKS[run.model], VARIANTS[run.variant]
    batches, test, alphabet = data_of(task, run, cache)
    inside = make_model(task, alphabet)
    model = DistributedDataParallel(inside, bucket_cap_mb=_ONE_BUCKET_MB)
    if variant.hook == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif variant.hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, POWERSGD_RANK, start_powerSGD_iter=WARMUP_STEPS)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = optimizers.make_optimizer(run, task, variant, inside)
    schedule = optimizers.make_schedule(optimizer, task)
    losses: list[tuple[int, float]] = []
    loss_steps = spread(LOSS_POINTS, task.steps)
    before = tcp_counts()
    for step in range(task.steps):
        x, y = next(batches)[rank]
        optimizer.zero_grad()
        loss: torch.Tensor = F.cross_entropy(model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(inside.parameters(), task.clip)
        optimizer.step()
        schedule.step()
        if step in loss_steps:
            losses.append((step, round(loss.item(), 4)))
    counted = tcp_since(before)
    dist.barrier()  # a connection that another rank has closed cannot be read
    return {
        **record_of(run, inside),
        task.measure: test(inside, None) if rank == 0 else None,
        "train_loss": losses,
        "gloo": None if counted is None else [round(counted[0] / task.steps), round(counted[1] / task.steps)],
        "seconds": round(time.monotonic() - started, 1),
    }

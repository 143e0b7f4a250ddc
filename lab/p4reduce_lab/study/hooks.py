"""The transformer's training with torch's own communication hooks: DistributedDataParallel over gloo, a process a rank.

The batches, the optimizer and the limit on the gradient's norm are those of transformer.py.
"""

# No `from __future__ import annotations`: torch reads a hook's annotations as types.
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
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
from p4reduce_lab.study import data
from p4reduce_lab.study.grid import WARMUP_STEPS, LanguageTask, Run
from p4reduce_lab.study.train import pieces, spread
from p4reduce_lab.study.transformer import (
    LOSS_POINTS,
    TEST_CHARACTERS,
    Recipe,
    language_task,
    make_model,
    make_optimizer,
    rate_at,
    test_loss,
)

POWERSGD_RANK = 2
_ONE_BUCKET_MB = 100
_TIMEOUT = timedelta(seconds=300)


def _fp16(model: DistributedDataParallel) -> None:
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)


def _powersgd(model: DistributedDataParallel) -> None:
    state = powerSGD_hook.PowerSGDState(None, POWERSGD_RANK, start_powerSGD_iter=WARMUP_STEPS)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


HOOKS: dict[str, Callable[[DistributedDataParallel], None]] = {
    "gloo-dense": lambda model: None,
    "gloo-fp16": _fp16,
    "gloo-powersgd": _powersgd,
}
"""PowerSGD begins with as many dense steps as ScaleCom."""


def train(run: Run, cache: Path) -> dict[str, Any]:
    """Train once, in a process for each rank; return rank 0's results."""
    # not forked from this process, which may have gRPC's threads
    multiprocessing.get_context("forkserver").set_forkserver_preload(["torch._dynamo", __name__])
    with tempfile.TemporaryDirectory() as folder, reserved_port() as port:
        out = Path(folder, "result.json")
        arguments = (run, language_task(run), cache, port, out)
        start_processes(_rank, arguments, run.workers, start_method="forkserver")  # type: ignore[no-untyped-call]
        result: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return result


def _rank(rank: int, run: Run, task: LanguageTask, cache: Path, port: int, out: Path) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    there = f"tcp://{LOOPBACK}:{port}"
    dist.init_process_group("gloo", there, rank=rank, world_size=run.workers, timeout=_TIMEOUT)
    try:
        result = _train(rank, run, task, cache)
    finally:
        dist.destroy_process_group()
    if rank == 0:
        out.write_text(json.dumps(result), encoding="utf-8")


def _train(rank: int, run: Run, task: LanguageTask, cache: Path) -> dict[str, Any]:
    started = time.monotonic()
    torch.manual_seed(run.seed)
    text = data.shakespeare(cache)
    inside = make_model(task, len(text.alphabet))
    model = DistributedDataParallel(inside, bucket_cap_mb=_ONE_BUCKET_MB)
    HOOKS[run.variant](model)
    optimizer = make_optimizer(run, task, inside, Recipe())
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_at(step, task))
    batches = pieces(text.train, task, run.workers, torch.Generator().manual_seed(1000 + run.seed), task.context)
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
        "id": run.id,
        **vars(run),
        "settings": vars(task),
        "parameters": sum(p.numel() for p in inside.parameters()),
        task.measure: test_loss(inside, text.test[:TEST_CHARACTERS], task.context) if rank == 0 else None,
        "diverged_at": None,
        "train_loss": losses,
        "residue_norm": [],
        "rates": {},
        "switch": [],
        "gloo": None if counted is None else [round(counted[0] / task.steps), round(counted[1] / task.steps)],
        "seconds": round(time.monotonic() - started, 1),
    }

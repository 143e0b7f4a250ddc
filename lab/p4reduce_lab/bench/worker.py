"""One rank of gloo and p4reduce, in one process, so that both are measured alike.

Started with the socket's path and the data interface's name as arguments; the rest is in the environment, as torchrun
and p4reduce take it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.distributed.device_mesh import DeviceMesh

import p4reduce
from p4reduce.codecs import Floats
from p4reduce.pytorch.backend.options import Options
from p4reduce_lab.bench.case import COMMUNICATOR
from p4reduce_lab.bench.rank import Rank, Reply, Sum, later
from p4reduce_lab.bench.tensors import Kind
from p4reduce_lab.training import load_script
from p4reduce_runtime.environment import P4REDUCE_JOB

_JOIN_S = 60.0
_COLLECTIVE_S = 120.0


class Worker(Rank):
    """A rank of both."""

    def __init__(self, interface: str) -> None:
        super().__init__(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), interface)
        self._comm: Any = None
        self._trainers: dict[str, Any] = {}
        self._groups: dict[str, Any] = {}
        self._models: dict[str, Any] = {}
        self._barriers: Any = None

    def join(self) -> Reply:
        """Join the process group and the job, or the launch where no job is named."""
        torch.set_num_threads(1)
        if P4REDUCE_JOB.read():
            dist.init_process_group("gloo")
            self._barriers = dist.group.WORLD
            self._comm = p4reduce.join(timeout_s=_JOIN_S, collective_timeout_s=_COLLECTIVE_S)
        else:
            dist.init_process_group("p4reduce")
            self._barriers = dist.new_group(backend="gloo")
            self._groups["p4reduce"] = dist.group.WORLD
            self._comm = self._groups["p4reduce"].join()
            self._group("gloo")
            cores = sorted(os.sched_getaffinity(0))
            if self._world_size == int(os.environ["LOCAL_WORLD_SIZE"]) <= len(cores):  # as mpirun does it
                os.sched_setaffinity(0, {cores[self._rank]})  # this thread: gloo's may be on any core
        return {}

    def _sum_of(self, peer: str, kind: Kind, data: NDArray[np.float32]) -> Sum:
        """Return what sums by "gloo"; "gloo fp16", which sends float16; "backend p4reduce"; COMMUNICATOR.

        Or by "p4reduce", "p4reduce 16" or "p4reduce 8", the wire format, in a collective of segments.
        """
        backend = {"gloo": "gloo", "gloo fp16": "gloo", "backend p4reduce": "p4reduce"}.get(peer)
        group = self._group(backend) if backend else None
        tensor = torch.from_numpy(data)
        bits = int(peer.removeprefix("p4reduce") or 32) if group is None and peer != COMMUNICATOR else None
        name = f"{kind.density:.0%} of blocks, {kind.pattern}"  # else calls of other densities would count as alike

        def work() -> NDArray[np.float32]:
            if peer == "gloo fp16":
                half = tensor.half()
                dist.all_reduce(half, group=group)
                tensor.copy_(half)
            elif group is not None:
                dist.all_reduce(tensor, group=group)
            elif bits is None:
                self._comm.all_reduce(data, out=data)
            else:
                part = Floats(data, bits, out=data)
                self._comm.all_reduce_segments([part], dense=kind.density >= 1, name=name)
            return data

        return work

    def generate(self, peer: str, tokens: int) -> Reply:
        """Generate so many tokens by examples/tensor_parallel.py over a backend, and measure that."""
        example = load_script("tensor_parallel.py")
        if peer not in self._models:
            mesh = DeviceMesh.from_group(self._group(peer), "cpu")
            self._models[peer] = example.split_model(mesh)
        found, measured = self._measure(partial(example.generate, self._models[peer], tokens))
        return {**measured, "tokens": str(found)}

    def collective(self, peer: str, name: str, elements: int, dtype: str, calls: int = 1) -> Reply:
        """Run a collective of torch.distributed `calls` times in a row and measure one call.

        `peer`: the backend, "gloo" or "backend p4reduce". `elements`: the length of this rank's tensor.
        """
        group = self._group(peer.removeprefix("backend "))
        mine = torch.ones(elements, dtype=getattr(torch, dtype))
        gathered = torch.empty(elements * self._world_size, dtype=mine.dtype)
        work: Callable[[], Any] = {
            "all_reduce": lambda: dist.all_reduce(mine, group=group),
            "broadcast": lambda: dist.broadcast(mine, 0, group=group),
            "all_gather": lambda: dist.all_gather(list(gathered.chunk(self._world_size)), mine, group=group),
        }[name]

        def in_a_row() -> None:
            for _ in range(calls):
                work()

        measured = self._measure(in_a_row)[1]
        mine.fill_(1)  # the sums of sums have grown
        gathered.fill_(0)
        work()
        expected = self._world_size if name == "all_reduce" else 1
        if not bool((mine == expected).all()) or (name == "all_gather" and not bool((gathered == 1).all())):
            raise AssertionError(f"{name} by {peer} gave a wrong result")
        return {**measured, "seconds": measured["seconds"] / calls}

    def _group(self, peer: str) -> Any:
        """Return the process group of a backend; all ranks call it at once.

        gloo has one of its own too: that of the barriers has just been used, and is quicker for that.
        """
        if peer not in self._groups:
            options = Options(slots=128) if peer == "p4reduce" else None
            self._groups[peer] = dist.new_group(backend=peer, pg_options=options)
        return self._groups[peer]

    def _group_to_train(self, backend: str) -> Any:
        return dist.group.WORLD if backend == "gloo" else self._group(backend)

    def begin_training(self, peer: str, **study: Any) -> Reply:
        """Begin a variant's training anew, of the digits, or of a task of the `study` (models.of_study).

        What other variants have begun stays, so that they can train in turn.
        """
        from p4reduce_lab.bench.models import Trainer, digits, of_study  # takes scikit-learn, which others do without

        if peer in self._trainers:
            self._trainers[peer].close()
        recipe = of_study(self._rank, self._world_size, **study) if study else digits(self._rank, self._world_size)
        self._trainers[peer] = Trainer(peer, self._comm, self._group_to_train, recipe)
        return {"parameters": self._trainers[peer].parameters}

    def continue_training(self, peer: str, steps: int, apart: bool = False) -> Reply:
        """Train so many steps more, and measure them; `apart`: all ranks begin each at once, and steps alone count."""
        spent, measured = self._measure(lambda: self._trainers[peer].steps(steps, apart=apart))
        return measured | ({"seconds": spent} if apart else {})

    def test(self, peer: str) -> Reply:
        """Return the training's quality on this rank's share of the test data."""
        return {"quality": self._trainers[peer].quality()}

    def close(self) -> Reply:
        """Leave the job and the process group."""
        self._comm.close()
        dist.destroy_process_group()
        return {}

    def _counters(self) -> dict[str, int]:
        stats = self._comm.stats.copy()
        ours = {"frames": stats.frames_up, "repeated": stats.retransmissions, "frame_bytes": stats.bytes_up}
        return {**super()._counters(), **ours}

    def _same_moment(self) -> float:
        dist.barrier(self._barriers)
        moment = torch.tensor([later()], dtype=torch.float64)
        dist.broadcast(moment, 0, self._barriers)
        return float(moment[0])


if __name__ == "__main__":
    Worker(sys.argv[2]).serve(sys.argv[1])

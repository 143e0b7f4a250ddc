"""One rank of a cluster: executes requests from a Unix socket and replies how long each took.

Started with the socket's path and the data interface's name as arguments; the rest is in the environment, as torchrun
and p4reduce take it. Requests and replies are lines of JSON. The gloo process group and the p4reduce job are in
the same process, so that both are measured alike.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

import p4reduce
from p4reduce.codecs import Floats
from p4reduce.pytorch.backend.options import Options
from p4reduce_lab.bench.tensors import Kind, tensor
from p4reduce_lab.network import interface_bytes

Reply = dict[str, Any]
_JOIN_S = 60.0
_COLLECTIVE_S = 120.0
_READY_S = 0.05
"""Seconds from the end of the barrier to the start: each rank must have received the start time before it comes."""
_KEPT_BYTES = 256 << 20
"""Bytes of the tensors that are used in turn, so that each keeps its place in memory, as gradients do."""


_LOST_BITS: Final = {"fp16": 10, "16": 11, "8": 3}
"""Format -> bits n: a sum of up to 8 ranks is off by at most ranks times a rank's largest number times 2^-n."""


class Worker:
    """The requests of one rank, a public method each."""

    def __init__(self, interface: str) -> None:
        self._interface = interface
        self._rank, self._world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._comm: Any = None
        self._sources: dict[Kind, Any] = {}
        self._trainers: dict[str, Any] = {}
        self._training: Any = None
        self._groups: dict[str, Any] = {}

    def join(self) -> Reply:
        """Join the process group and the job."""
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self._comm = p4reduce.join(timeout_s=_JOIN_S, collective_timeout_s=_COLLECTIVE_S)
        return {}

    def all_reduce(self, peer: str, elements: int, density: float, pattern: str, dense: bool, check: bool) -> Reply:
        """Sum a float32 tensor over all ranks, and measure that; with `check`, see that the sum is right.

        `peer`: "gloo"; "gloo fp16", which sends float16; "p4reduce", "p4reduce 16" or "p4reduce 8": the wire format.
        """
        kind = Kind(elements, density, pattern)
        if kind not in self._sources:
            source = tensor(kind, self._rank, self._world_size)
            if sum(2 * held.nbytes for held, _ in self._sources.values()) + 2 * source.nbytes > _KEPT_BYTES:
                self._sources.clear()
            self._sources[kind] = source, np.empty_like(source)
        source, copied = self._sources[kind]
        np.copyto(copied, source)  # gloo sums in place, and so do we
        wire = peer.partition(" ")[2] or None
        name = f"{density:.0%} of blocks, {pattern}"  # else calls of other densities, in turn, would count as alike
        if peer == "gloo":

            def work() -> Any:
                dist.all_reduce(torch.from_numpy(copied))
                return copied

        elif peer == "gloo fp16":

            def work() -> Any:
                half = torch.from_numpy(copied).half()
                dist.all_reduce(half)
                torch.from_numpy(copied).copy_(half)
                return copied

        else:

            def work() -> Any:
                part = Floats(copied, int(wire) if wire else None, out=copied)
                return self._comm.all_reduce_segments([part], dense=dense, name=name)[0]

        found, measured = self._measure(work)
        if check:
            expected = torch_sum(source)
            lost = 2.0 ** -_LOST_BITS[wire] if wire in _LOST_BITS else 0.0
            off = max(1e-3, self._world_size * np.abs(expected).max() * lost)
            if not np.allclose(found, expected, rtol=1e-3, atol=off):
                raise AssertionError(f"the sum by {peer} is wrong by up to {np.abs(found - expected).max()}")
        return measured

    def collective(self, peer: str, name: str, elements: int, dtype: str, calls: int = 1) -> Reply:
        """Run a collective of torch.distributed `calls` times in a row and measure one call.

        `peer`: the backend, "gloo" or "p4reduce". `elements`: the length of this rank's tensor.
        """
        group = self._group(peer)
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

        _, measured = self._measure(in_a_row)
        mine.fill_(1)  # the sums of sums have grown
        gathered.fill_(0)
        work()
        expected = self._world_size if name == "all_reduce" else 1
        if not bool((mine == expected).all()) or (name == "all_gather" and not bool((gathered == 1).all())):
            raise AssertionError(f"{name} by {peer} gave a wrong result")
        return {**measured, "seconds": measured["seconds"] / calls}

    def _group(self, peer: str) -> Any:
        """Return the process group of a backend; all ranks call it at once.

        gloo has one of its own too: that of the world has just been used for the barriers, and is quicker for that.
        """
        if peer not in self._groups:
            options = Options(slots=128) if peer == "p4reduce" else None
            self._groups[peer] = dist.new_group(backend=peer, pg_options=options)
        return self._groups[peer]

    def _group_to_train(self, backend: str) -> Any:
        return dist.group.WORLD if backend == "gloo" else self._group(backend)

    def train(self, peer: str, steps: int) -> Reply:
        """Train one variant on the digits for so many steps more; measure those alone, and the accuracy after them."""
        from p4reduce_lab.bench.models import Trainer, digits  # takes scikit-learn, which other requests do without

        if peer not in self._trainers:
            recipe = digits(self._rank, self._world_size)
            self._trainers[peer] = Trainer(peer, self._comm, self._group_to_train, recipe)
        trainer = self._trainers[peer]
        spent, measured = self._measure(lambda: trainer.steps(steps, apart=True))
        return {**measured, "seconds": spent, "accuracy": trainer.quality(), "parameters": trainer.parameters}

    def begin_training(self, peer: str, task: str, seed: int, data: str, settings: dict[str, Any]) -> Reply:
        """Begin a training of a task of the study, in place of the last one."""
        from p4reduce_lab.bench.models import Trainer, of_study

        if self._training is not None:
            self._training.close()
        recipe = of_study(task, self._rank, self._world_size, seed=seed, data=data, settings=settings)
        self._training = Trainer(peer, self._comm, self._group_to_train, recipe)
        return {}

    def continue_training(self, steps: int) -> Reply:
        """Train so many steps more, and measure them."""
        return self._measure(lambda: self._training.steps(steps))[1]

    def test(self) -> Reply:
        """Return the training's quality on this rank's share of the test data."""
        return {"quality": self._training.quality()}

    def close(self) -> Reply:
        """Leave the job and the process group."""
        self._comm.close()
        dist.destroy_process_group()
        return {}

    def _measure(self, work: Callable[[], Any]) -> tuple[Any, Reply]:
        """Run `work` on all ranks at once; return its result, and what it took from the moment that all share."""
        begin = self._same_moment()
        stats = self._comm.stats.copy()
        up, down = interface_bytes(self._interface)
        time.sleep(max(0.0, begin - time.monotonic()))
        cpu = time.process_time()
        result = work()
        seconds, cpu = time.monotonic() - begin, time.process_time() - cpu
        up_now, down_now = interface_bytes(self._interface)
        measured: Reply = {"seconds": seconds, "cpu_s": cpu, "bytes_up": up_now - up, "bytes_down": down_now - down}
        spent = self._comm.stats - stats
        measured |= {"frames": spent.frames_up, "repeated": spent.retransmissions}
        return result, measured

    def _same_moment(self) -> float:
        """Return a moment of the machine's monotonic clock, soon and the same for all ranks, once all are ready.

        A barrier alone would not do: on two cores the ranks leave it one after the other, seen up to 8 ms apart.
        """
        dist.barrier()
        moment = torch.tensor([time.monotonic() + _READY_S], dtype=torch.float64)
        dist.broadcast(moment, 0)
        return float(moment[0])


def torch_sum(source: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return gloo's sum of a numpy array over all ranks."""
    copied = torch.from_numpy(source.copy())
    dist.all_reduce(copied)
    summed: NDArray[np.float32] = copied.numpy()
    return summed


def main() -> None:
    """Execute requests until the cluster closes the socket."""
    path, interface = sys.argv[1:]
    worker = Worker(interface)
    names = ("join", "all_reduce", "collective", "train", "begin_training", "continue_training", "test", "close")
    requests: dict[str, Callable[..., Reply]] = {name: getattr(worker, name) for name in names}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        with connection.makefile("rw", encoding="utf-8") as lines:
            print(json.dumps({"rank": int(os.environ["RANK"])}), file=lines, flush=True)
            for line in lines:
                request = json.loads(line)
                try:
                    reply = requests[request.pop("do")](**request)
                except Exception:
                    reply = {"error": traceback.format_exc()}
                print(json.dumps(reply), file=lines, flush=True)


if __name__ == "__main__":
    main()

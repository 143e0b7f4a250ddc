"""What the ranks of a training exchange in a step: in this process, or over a switch with the same bits.

The ranks' gradients come in, and the mean by parameter name comes out: of a compressor (Compressed), or of a ring of
hosts (Ring).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import p4reduce
from p4reduce.compressors import Compressor
from p4reduce.compressors.all_reduce import all_reduce_compressed
from p4reduce.testing.in_process import exchange_all, groups
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_lab.papers.inceptionn import Inceptionn, mean_over_ring
from p4reduce_lab.study.grid import Variant

Gradients = Sequence[Mapping[str, torch.Tensor]]
Means = Mapping[str, torch.Tensor]
Floats = NDArray[np.float32]
FLOAT_BYTES: Final = 4
_DEADLINE_S: Final = 120.0


@contextlib.contextmanager
def on_switch(controller: str, job: str, world_size: int) -> Iterator[Sequence[p4reduce.Communicator]]:
    """Join all ranks to a job of its own, which ends with the `with` block; yield their communicators."""

    def join(rank: int) -> p4reduce.Communicator:
        comm = p4reduce.join(
            job, rank=rank, world_size=world_size, controller=controller, collective_timeout_s=_DEADLINE_S
        )
        comm.hosts = None  # each rank is to send for itself
        return comm

    with JobClient(controller) as client, ThreadPoolExecutor(world_size) as pool:
        client.create_job(job, world_size)
        comms: list[p4reduce.Communicator] = []
        try:
            comms += pool.map(join, range(world_size))
            yield comms
            list(pool.map(p4reduce.Communicator.close, comms))
        finally:
            list(pool.map(lambda comm: comm.close(wait=False), comms))
            client.remove_job(job)


class Compressed:
    """A compressor of each rank."""

    def __init__(self, model: nn.Module, make: Callable[[], Compressor], world_size: int) -> None:
        self.compressors = [make() for _ in range(world_size)]
        for compressor in self.compressors:
            compressor.bind(model)
        self._places = groups(world_size)

    def here(self, gradients: Gradients) -> Means:
        """Return the means, summed in this process."""
        return exchange_all(self.compressors, gradients, self._places)[0].means

    def over(self, comms: Sequence[p4reduce.Communicator], gradients: Gradients) -> tuple[Means, dict[str, Any]]:
        """Return the means of a switch, and what the step cost a worker. RuntimeError when ranks differ."""
        before = [comm.stats.copy() for comm in comms]
        with ThreadPoolExecutor(len(comms)) as pool:
            (first, report), *others = pool.map(all_reduce_compressed, comms, self.compressors, gradients)
        for other, _ in others:
            if not all(itertools.starmap(torch.equal, zip(other.means.values(), first.means.values(), strict=True))):
                raise RuntimeError("the ranks have different sums")
        spent = [comm.stats - since for comm, since in zip(comms, before, strict=True)]
        return first.means, {
            "bytes_up": sum(own.bytes_up for own in spent) / len(spent),
            "bytes_down": sum(own.bytes_down for own in spent) / len(spent),
            "frames_again": sum(own.retransmissions for own in spent),
            "forms": {key: str(form) for key, form in report.forms.items()},
        }

    def residue_norm(self) -> float:
        """Return the L2 norm of a rank's residue, the mean over the ranks."""
        return sum(compressor.residue_norm() for compressor in self.compressors) / len(self.compressors)


class Ring:
    """A ring of hosts, in INCEPTIONN's numbers or with plain ones, and what its ranks have sent."""

    compressors: Sequence[Compressor] = ()

    def __init__(self, variant: Variant, world_size: int) -> None:
        self._codec = Inceptionn(**variant.ring) if variant.ring else None
        self._world_size = world_size
        self._steps = self._elements = self._zeros = self._bytes = 0

    def here(self, gradients: Gradients) -> Means:
        flat = [torch.cat([own.reshape(-1) for own in of_rank.values()]).numpy() for of_rank in gradients]
        if self._codec is None:
            found: Floats = np.mean(flat, axis=0, dtype=np.float32)
            self._bytes += 2 * (self._world_size - 1) * FLOAT_BYTES * len(found)  # of all ranks
        else:
            found, sent = mean_over_ring(flat, self._codec)
            self._bytes += sent
        self._steps += 1
        self._elements += len(found)
        self._zeros += len(found) - int(np.count_nonzero(found))
        parts = torch.split(torch.from_numpy(found), [own.numel() for own in gradients[0].values()])
        return {name: part.view_as(own) for (name, own), part in zip(gradients[0].items(), parts, strict=True)}

    def residue_norm(self) -> float:
        return 0.0

    def counted(self) -> dict[str, Any]:
        """Return a rank's mean bytes a step, those of float32, and the share of zeros in the means."""
        steps = max(1, self._steps)
        dense = 2 * (self._world_size - 1) * FLOAT_BYTES * self._elements
        return {
            "bytes_a_step": round(self._bytes / self._world_size / steps),
            "dense_bytes_a_step": round(dense / self._world_size / steps),
            "zeros": round(self._zeros / max(1, self._elements), 5),
        }

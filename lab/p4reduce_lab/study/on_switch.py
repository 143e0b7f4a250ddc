"""The same exchange through the real switch: one communicator a rank, each in a thread of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import torch

import p4reduce
from p4reduce.codecs import Segment
from p4reduce.compressors import Compressor
from p4reduce.compressors.all_reduce import BucketReport, all_reduce_compressed
from p4reduce.compressors.exchange import Gradients, Outcome
from p4reduce_contracts.jobs.client import JobClient

DEADLINE_S = 120.0


class OnSwitch:
    """All ranks of a job of its own, for as long as the `with` block lasts."""

    def __init__(self, controller: str, job: str, world_size: int) -> None:
        self._controller, self._job, self._world_size = controller, job, world_size

    def __enter__(self) -> OnSwitch:
        with JobClient(self._controller) as client, contextlib.ExitStack() as undo:
            client.create_job(self._job, self._world_size)
            undo.callback(client.remove_job, self._job)
            self._pool = ThreadPoolExecutor(self._world_size)
            undo.callback(self._pool.shutdown)
            self._comms = list(self._pool.map(self._join, range(self._world_size)))
            undo.pop_all()
        return self

    def _join(self, rank: int) -> p4reduce.Communicator:
        return p4reduce.join(
            self._job,
            rank=rank,
            world_size=self._world_size,
            controller=self._controller,
            collective_timeout_s=DEADLINE_S,
        )

    def exchange(
        self, compressors: Sequence[Compressor], gradients: Sequence[Gradients]
    ) -> tuple[list[Outcome], list[BucketReport], int]:
        """Outcomes and reports by rank, and how many frames were sent again. RuntimeError when ranks differ."""
        before = sum(comm.stats.retransmissions for comm in self._comms)
        both = list(self._pool.map(all_reduce_compressed, self._comms, compressors, gradients))
        outcomes = [outcome for outcome, _ in both]
        for rank, outcome in enumerate(outcomes):
            for key, mean in outcome.means.items():
                if not torch.equal(mean, outcomes[0].means[key]):
                    raise RuntimeError(f"ranks 0 and {rank} of {self._job} have different means of {key}")
        again = sum(comm.stats.retransmissions for comm in self._comms) - before
        return outcomes, [report for _, report in both], again

    def sum(self, segments: Sequence[Segment]) -> tuple[list[torch.Tensor], list[BucketReport], int]:
        """Sum one tensor of each rank: results and bytes by rank, and how many frames were sent again.

        RuntimeError when the results differ.
        """
        before = [comm.stats.copy() for comm in self._comms]
        totals = list(self._pool.map(lambda comm, own: comm.all_reduce_segments([own])[0], self._comms, segments))
        if not all(torch.equal(total, totals[0]) for total in totals):
            raise RuntimeError(f"the ranks of {self._job} have different sums")
        spent = [comm.stats - since for comm, since in zip(self._comms, before, strict=True)]
        reports = [BucketReport({}, {}, None, own.bytes_down, own.bytes_up) for own in spent]
        return totals, reports, sum(own.retransmissions for own in spent)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        list(self._pool.map(lambda comm: comm.close(wait=kind is None), self._comms))
        self._pool.shutdown()
        with JobClient(self._controller) as client:
            client.remove_job(self._job)

"""A compressor's step where ranks share hosts: a host is one learner, with the gradients of all its ranks.

    every rank      writes its gradients to the host's memory; then all ranks compare their calls
    rank p of each  adds part p of every parameter over its host, in the order of the ranks, and exchanges it with
    host            the ranks p of the other hosts, as `exchange` says; it has the residues of its part alone
    every rank      learns whether all parts are there: if a rank refused, nothing has happened on any; then it copies
                    the means

A learner's gradient is the sum over its ranks times hosts / ranks: where hosts have equally many, their mean.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from p4reduce.codecs import Segment
from p4reduce.communicator import Communicator
from p4reduce.compressors import exchange as learners
from p4reduce.compressors.exchange import Gradients, Outcome
from p4reduce.compressors.interface import Compressor
from p4reduce.compressors.messages import Form
from p4reduce.compressors.step import ParameterState
from p4reduce.errors import InvalidTensorError, P4ReduceError, PeerRefusedError
from p4reduce.paths.hosts.plan import elements_of
from p4reduce.paths.hosts.sums import HostSums
from p4reduce.paths.path import Lost
from p4reduce.stats import CollectiveStats
from p4reduce_contracts.jobs.lease import Lease, LeasedSwitch

Spans = Mapping[str, tuple[int, int]]
"""Parameter -> its begin and end among the elements of all."""


def exchange(
    comm: Communicator,
    hosts: HostSums,
    compressor: Compressor,
    gradients: Gradients,
    *,
    checked: bool = False,
    timeout_s: float | None = None,
) -> Outcome:
    """Compute the mean over all ranks of each gradient, as `exchange.exchange` does; `forms` are those of this shard.

    Raises InvalidTensorError, of which the caller has to tell the other ranks (`Communicator.refuse`), and
    PeerRefusedError and CollectiveError as every collective. The compressor is then as it was before. `timeout_s`: of
    each of its collectives.
    """
    if not checked:
        learners.check_gradients(gradients)
    wait_s = comm.timeout_s if timeout_s is None else timeout_s
    return comm.queue.run("all_reduce", wait_s, _exchange, comm, hosts, compressor, gradients, wait_s)


def _exchange(
    comm: Communicator, hosts: HostSums, compressor: Compressor, gradients: Gradients, wait_s: float
) -> Outcome:
    comm.check_alone()  # before this rank's data in the memory, which others may be reading, is written over
    ends = [0, *accumulate(tensor.numel() for tensor in gradients.values())]
    spans, elements = dict(zip(gradients, pairwise(ends), strict=True)), ends[-1]
    if elements > hosts.most_elements:
        raise InvalidTensorError(
            f"a bucket of {elements} elements, more than the {hosts.most_elements} that a host's memory has room for: "
            "make smaller buckets (bucket_cap_mb), or set P4REDUCE_HOSTS=off on all ranks"
        )
    before = {key: compressor.state_of(key) for key in gradients}
    own = torch.from_numpy(hosts.inputs(elements)[hosts.place])
    for key, (begin, end) in spans.items():
        own[begin:end].copy_(gradients[key].detach().reshape(-1))
    name = "over hosts: " + ", ".join(f"{key} {tuple(tensor.shape)}" for key, tensor in gradients.items())
    steps = compressor.agreement_text([ParameterState(state.steps) for state in before.values()])
    comm.compare(name, len(gradients), elements, steps, timeout_s=wait_s)
    what = f"a step of {compressor.name} over hosts"

    stats = CollectiveStats()

    def lost() -> P4ReduceError | None:
        return comm.failure.lost() or (None if comm.hosts is None else comm.hosts.failure())

    shard = _Shard(comm, hosts, compressor, spans, wait_s, lost, stats)
    found: dict[str, Form] | P4ReduceError | None
    try:
        try:
            found = comm.guard(what, hosts.share, lambda number: shard.step(number, gradients), wait_s, lost, what)
        finally:
            comm.stats.add(stats)
        if isinstance(found, InvalidTensorError):
            raise found
        comm.barrier(timeout_s=wait_s)  # every rank has its part, or all know which one refused
        if isinstance(found, P4ReduceError):
            raise found
    except BaseException as error:
        compressor.commit_step(before)
        if not isinstance(error, P4ReduceError):  # between two collectives: the others wait in the second
            comm.failure.fail_of(error, what, hosts)
        raise
    forms = found or {}
    stepped = {key: state.after_dense() for key, state in before.items() if compressor.state_of(key) is state}
    compressor.commit_step(stepped)  # of what this rank has no part of, the steps are counted
    means = {
        key: torch.from_numpy(hosts.results(elements)[begin:end])
        .view(gradients[key].shape)
        .to(gradients[key], copy=True)
        for key, (begin, end) in spans.items()
    }
    return Outcome(means, forms)


class _Shard:
    """This rank's shard in one step."""

    def __init__(
        self,
        comm: Communicator,
        hosts: HostSums,
        compressor: Compressor,
        spans: Spans,
        wait_s: float,
        lost: Lost,
        stats: CollectiveStats,
    ) -> None:
        self._hosts, self._compressor, self._spans = hosts, compressor, spans
        self._ranks = comm.world_size
        self._group = learner_group(comm, hosts)
        self._deadline = time.monotonic() + wait_s
        self._lost, self._stats = lost, stats

    def step(self, shard: int, gradients: Gradients) -> dict[str, Form] | P4ReduceError:
        """Exchange the shard, and write its means to the host's memory; return the forms, or a refusal."""
        elements = max(end for _, end in self._spans.values())
        inputs, results = self._hosts.inputs(elements), self._hosts.results(elements)
        parts: dict[str, torch.Tensor] = {}
        begins: dict[str, int] = {}
        for key, (begin, end) in self._spans.items():
            first, last = elements_of(shard, self._hosts.plan.shards, end - begin)
            if first < last:
                total = torch.from_numpy(self._of_host(inputs[:, begin + first : begin + last]))
                parts[key], begins[key] = total.view(-1, *[1] * (gradients[key].dim() - 1)), first
        if not parts:
            return {}
        try:
            steps = learners.exchange(self._compressor, parts, self._group, begins=begins)
            outcome = learners.complete(steps, next(steps), self._sum)
        except InvalidTensorError as error:
            self._hosts.refuse(error, self._left_s(), self._lost, self._stats)
            return error
        except PeerRefusedError as error:
            return error
        for key, mean in outcome.means.items():
            at = self._spans[key][0] + begins[key]
            results[at : at + mean.numel()] = mean.view(-1).numpy()
        return outcome.forms

    def _of_host(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the learner's gradient of the gradients of its ranks, [ranks of the host, elements]."""
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused
            total: NDArray[np.float32] = rows[0].copy()
            for row in rows[1:]:
                total += row
            total *= np.float32(self._group.world_size / self._ranks)
        return total

    def _sum(self, segments: Sequence[Segment], *, name: str, agreement: str) -> list[object]:
        return self._hosts.sum_segments(segments, self._group, name, agreement, self._left_s(), self._lost, self._stats)

    def _left_s(self) -> float:
        return max(1e-3, self._deadline - time.monotonic())


def learner_group(comm: Communicator, hosts: HostSums) -> Lease:
    """Return the hosts of a communicator as codecs and compressors see ranks, which use rank, size and frames alone."""
    return replace(comm.lease, rank=hosts.host, world_size=len(hosts.plan.hosts), switches=(LeasedSwitch(),))

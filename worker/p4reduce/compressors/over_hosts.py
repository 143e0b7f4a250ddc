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
from p4reduce.compressors.exchange import Gradients, Outcome, check_gradients, complete
from p4reduce.compressors.exchange import exchange as exchange_learners
from p4reduce.compressors.interface import Compressor
from p4reduce.compressors.messages import Form
from p4reduce.compressors.step import ParameterState
from p4reduce.errors import InvalidTensorError, P4ReduceError, PeerRefusedError
from p4reduce.paths.hosts.plan import elements_of
from p4reduce.paths.hosts.sums import HostSums
from p4reduce.stats import CollectiveStats
from p4reduce_contracts.jobs.lease import LeasedSwitch

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
        check_gradients(gradients)
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
    inputs = hosts.inputs(elements)
    own = torch.from_numpy(inputs[hosts.place])
    for key, (begin, end) in spans.items():
        own[begin:end].copy_(gradients[key].detach().reshape(-1))
    name = "over hosts: " + ", ".join(f"{key} {tuple(tensor.shape)}" for key, tensor in gradients.items())
    steps = compressor.agreement_text([ParameterState(state.steps) for state in before.values()])
    comm.compare(name, len(gradients), elements, steps, timeout_s=wait_s)
    what = f"a step of {compressor.name} over hosts"
    stats, deadline = CollectiveStats(), time.monotonic() + wait_s
    # the hosts as codecs and compressors see ranks: they use rank, size and frames alone
    learners = replace(comm.lease, rank=hosts.host, world_size=len(hosts.plan.hosts), switches=(LeasedSwitch(),))

    def lost() -> P4ReduceError | None:
        return comm.failure.lost() or (None if comm.hosts is None else comm.hosts.failure())

    def left_s() -> float:
        return max(1e-3, deadline - time.monotonic())

    def sum_segments(segments: Sequence[Segment], *, name: str, agreement: str) -> list[object]:
        return hosts.sum_segments(segments, learners, name, agreement, left_s(), lost, stats)

    def step(shard: int) -> dict[str, Form] | P4ReduceError:
        """Exchange this rank's shard, and write its means to the host's memory; return the forms, or a refusal."""
        parts, begins = _parts_of(shard, comm.world_size, hosts, inputs, gradients, spans)
        if not parts:
            return {}
        try:
            steps = exchange_learners(compressor, parts, learners, begins=begins)
            outcome = complete(steps, next(steps), sum_segments)
        except InvalidTensorError as error:
            hosts.refuse(error, left_s(), lost, stats)
            return error
        except PeerRefusedError as error:
            return error
        results = hosts.results(elements)
        for key, mean in outcome.means.items():
            at = spans[key][0] + begins[key]
            results[at : at + mean.numel()] = mean.view(-1).numpy()
        return outcome.forms

    found: dict[str, Form] | P4ReduceError | None
    try:
        try:
            found = comm.guard(what, hosts.share, step, wait_s, lost, what)
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
            comm.failure.fail_of(error, what, hosts.set_failed)
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


def _parts_of(
    shard: int, ranks: int, hosts: HostSums, inputs: NDArray[np.float32], gradients: Gradients, spans: Spans
) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    """Return the learner's gradients of a shard, and the index of the first element of each in its parameter.

    `inputs`: the gradients of its ranks, [ranks of the host, elements].
    """
    parts: dict[str, torch.Tensor] = {}
    begins: dict[str, int] = {}
    for key, (begin, end) in spans.items():
        first, last = elements_of(shard, hosts.plan.shards, end - begin)
        if first >= last:
            continue
        rows = inputs[:, begin + first : begin + last]
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused
            total: NDArray[np.float32] = rows[0].copy()
            for row in rows[1:]:
                total += row
            total *= np.float32(len(hosts.plan.hosts) / ranks)
        parts[key] = torch.from_numpy(total).view(-1, *[1] * (gradients[key].dim() - 1))
        begins[key] = first
    return parts, begins

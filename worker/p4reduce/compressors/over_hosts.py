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
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from p4reduce import collectives
from p4reduce.codecs import Segment
from p4reduce.collectives import Contribution
from p4reduce.communicator import Communicator
from p4reduce.compressors.exchange import Gradients, Outcome, check_gradients, complete
from p4reduce.compressors.exchange import exchange as exchange_learners
from p4reduce.compressors.host_group import Piece, parts_of, pieces_of
from p4reduce.compressors.interface import Compressor
from p4reduce.compressors.messages import Form
from p4reduce.compressors.step import ParameterState
from p4reduce.errors import InvalidTensorError, P4ReduceError, PeerRefusedError
from p4reduce.paths.hosts.shard import ShardPath
from p4reduce.paths.hosts.sums import HostSums
from p4reduce.paths.path import FinishedCollective, Lost
from p4reduce.protocol.blocks import sum_blocks
from p4reduce.protocol.refusal import reason_of
from p4reduce.stats import CollectiveStats
from p4reduce_contracts.jobs.lease import LeasedSwitch
from p4reduce_contracts.wire.calls import Kind


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

    def lost() -> P4ReduceError | None:
        return comm.failure.lost() or (None if comm.hosts is None else comm.hosts.failure())

    def step(shard: int) -> dict[str, Form] | P4ReduceError:
        """Exchange this rank's shard, and write its means to the host's memory; return the forms, or a refusal."""
        pieces = pieces_of(shard, hosts.plan.shards, spans)
        if not pieces:
            return {}
        mine = _sum_pieces(pieces, inputs, np.float32(len(hosts.plan.hosts) / comm.world_size))
        parts, begins = parts_of(pieces, mine, gradients)
        between = _BetweenHosts(comm, hosts, deadline, lost, stats)
        try:
            steps = exchange_learners(compressor, parts, between.lease, begins=begins)
            outcome = complete(steps, next(steps), between.all_reduce_segments)
        except InvalidTensorError as error:
            between.refuse(error)
            return error
        except PeerRefusedError as error:
            return error
        results = hosts.results(elements)
        for piece in pieces:
            results[piece.begin : piece.end] = outcome.means[piece.name].view(-1).numpy()
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


class _BetweenHosts:
    """The collectives of one step of the ranks of a shard, one of each host, as those of a communicator."""

    def __init__(
        self, comm: Communicator, hosts: HostSums, deadline: float, lost: Lost, stats: CollectiveStats
    ) -> None:
        self._hosts, self._deadline, self._lost, self._stats = hosts, deadline, lost, stats
        # the hosts as codecs and compressors see ranks: they use rank, size and frames alone
        size = len(hosts.plan.hosts)
        self.lease = replace(comm.lease, rank=hosts.host, world_size=size, switches=(LeasedSwitch(),))

    def all_reduce_segments(self, segments: Sequence[Segment], *, name: str, agreement: str) -> list[Any]:
        """Return the sums of the segments over the hosts. Raises PeerRefusedError where one of these ranks refused."""
        plans, path, lease = self._hosts.plans, self._hosts.shard_path, self.lease
        contribution = collectives.all_reduce_segments(plans, lease, segments, False, name, agreement)
        blocks = contribution.blocks
        if path is None:
            sums: list[Any] = blocks.decode(*sum_blocks([blocks], lease.block_words))
        else:
            collective = self._run(path, contribution)
            if collective.refusals:
                reasons = {path.rank_of(host): reason for host, reason in collective.refusals.items()}
                raise PeerRefusedError(str(collective.call), reasons)
            sums = collective.result()
        plans.give_back(contribution)
        return sums

    def refuse(self, error: Exception) -> None:
        """Tell the ranks of this shard, in the place of a sum, that this rank cannot take part."""
        if (path := self._hosts.shard_path) is not None:
            self._run(path, collectives.no_blocks(Kind.REFUSED, reason_of(error)))

    def _run(self, path: ShardPath, contribution: Contribution) -> FinishedCollective:
        self._stats.collectives += 1
        left_s = max(1e-3, self._deadline - time.monotonic())
        return path.run(replace(contribution, number=self._hosts.number), left_s, self._lost, self._stats)


def _sum_pieces(pieces: Sequence[Piece], inputs: NDArray[np.float32], factor: np.float32) -> torch.Tensor:
    """Return the sums of the pieces' numbers over the ranks of the host, times a factor, one after the other.

    `inputs`: the gradients of its ranks, [ranks of the host, elements].
    """
    sums = np.empty(sum(piece.end - piece.begin for piece in pieces), np.float32)
    at = 0
    for piece in pieces:
        rows, total = inputs[:, piece.begin : piece.end], sums[at : at + piece.end - piece.begin]
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused
            total[:] = rows[0]
            for row in rows[1:]:
                total += row
            total *= factor
        at += len(total)
    return torch.from_numpy(sums)

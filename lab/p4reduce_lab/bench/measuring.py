"""What a cluster's ranks do by several peers in turn: an all-reduce, a training step, a request of a case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median

from p4reduce_lab.bench.case import Series
from p4reduce_lab.bench.cluster import Cluster

MEGABYTE = 1 << 20
FLOAT_BYTES = 4
STEPS = 4
"""Steps in one turn of a peer."""
_WARM_UP_STEPS = 4
_LIMIT_S = 60.0
BACKENDS = ("gloo", "p4reduce")
"""Backends of torch.distributed."""
CALLS = 20
"""Calls of a collective in a row, nccl-tests' default."""

Counts = dict[str, list[float]]


def measure_in_turn(
    cluster: Cluster,
    what: str,
    peers: Mapping[str, Callable[[Counts], float]],
    *,
    size: int = 0,
    turns: int = 0,
    limit_s: float = _LIMIT_S,
    at_least: int = 1,
    times: int = 1,
) -> dict[str, list[float]]:
    """Measure each peer in turn on the cluster's link, and add its series; return seconds by peer.

    A peer is called with a dictionary for its counts, as `Cluster.timed` fills it. `size`: bytes of a tensor that is
    summed. `turns`: 0 for the run's repetitions. `times`: what is counted is of so many.
    """
    run = cluster.run
    counts: dict[str, Counts] = {peer: {} for peer in peers}
    calls = {peer: partial(call, counts[peer]) for peer, call in peers.items()}
    found = run.in_turn(calls, turns=turns, limit_s=limit_s, at_least=at_least)
    sized = {"size": size, "ranks": cluster.world_size} if size else {}
    for peer, seconds in found.items():
        counted = {
            name: median(values) / (1 if name.endswith("a frame") else times) for name, values in counts[peer].items()
        }
        if size and cluster.link.rate_mbit:
            counted["% of the link"] = 100 * 8 * size / median(seconds) / 1e6 / cluster.link.rate_mbit
        milliseconds = [1000 * second for second in seconds]
        run.add(Series(what, peer, str(cluster.link), "ms", milliseconds, {}, counted, **sized))
    return found


def measure_steps(cluster: Cluster, peers: Sequence[str], steps: int = STEPS) -> dict[str, list[float]]:
    """Measure a training step of each peer; return the seconds of a step."""
    for peer in peers:
        parameters = cluster.ask("begin_training", peer=peer)[0]["parameters"]
        cluster.ask("continue_training", peer=peer, steps=_WARM_UP_STEPS, apart=True)

    def step(peer: str, counts: Counts) -> float:
        return cluster.timed("continue_training", counts, peer=peer, steps=steps, apart=True) / steps

    what = f"a step of {parameters:,} parameters, {cluster.world_size} workers, {cluster.placement.name}"
    return measure_in_turn(cluster, what, {peer: partial(step, peer) for peer in peers}, at_least=3, times=steps)

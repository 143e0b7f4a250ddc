"""The time of a training step, by several peers in turn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from p4reduce_lab.bench.case import Series
from p4reduce_lab.bench.cluster import Cluster, summed_up
from p4reduce_lab.bench.numbers import in_turn

STEPS = 4
"""In one turn of a peer."""
_WARM_UP_STEPS = 4
_LIMIT_S = 60.0


def measure_steps(cluster: Cluster, peers: Sequence[str], steps: int = STEPS) -> dict[str, list[float]]:
    """Measure a training step of each peer on the cluster's link, and add its series; return the seconds of a step."""
    run = cluster.run
    counts: dict[str, dict[str, list[float]]] = {peer: {} for peer in peers}
    for peer in peers:
        parameters = cluster.workers.ask("train", peer=peer, steps=_WARM_UP_STEPS)[0]["parameters"]

    def step(peer: str) -> float:
        return cluster.timed("train", counts[peer], peer=peer, steps=steps) / steps

    found = in_turn({peer: partial(step, peer) for peer in peers}, run.repetitions, _LIMIT_S, at_least=3)
    what = f"a step of {parameters:,} parameters, {cluster.world_size} workers"
    for peer in peers:
        counted = {
            name: value if name.endswith("a frame") else value / steps
            for name, value in summed_up(counts[peer]).items()
        }
        values = [1000 * second for second in found[peer]]
        run.add(Series(what, peer, str(cluster.link), "ms", values, {}, counted))
    return found

"""Tensor parallel inference (examples/tensor_parallel.py): tokens a second at batch 1 over gloo and p4reduce."""

from __future__ import annotations

from functools import partial

from p4reduce_lab.bench.case import NETWORKS, TRAINING_PACKAGES, Case, Run, Series, on_two_cores
from p4reduce_lab.bench.cluster import OF_LAUNCH, Cluster, running_cluster
from p4reduce_lab.bench.links import GBIT_1, LOOPBACK

RANKS = 2
BACKENDS = ("gloo", "p4reduce")
"""Backends of torch.distributed."""
TOKENS, QUICK_TOKENS = 48, 8
"""Tokens in one turn of a backend."""
LINKS = {LOOPBACK: "one host of 2 ranks, no switch", GBIT_1: "2 hosts of one rank, the launch's switches"}


def measure(run: Run) -> None:
    """Generate on one host and on two, on two cores."""
    with on_two_cores():
        for link, where in LINKS.items():
            with running_cluster(run, link, RANKS, placement=OF_LAUNCH) as cluster:
                _generate(cluster, where)


def _generate(cluster: Cluster, where: str) -> None:
    """Generate in turn. Raises AssertionError where the tokens differ."""
    run, count = cluster.run, QUICK_TOKENS if cluster.run.quick else TOKENS
    tokens: set[str] = set()

    def rate(peer: str) -> float:
        replies = cluster.ask("generate", peer=peer, tokens=count)
        tokens.update(reply["tokens"] for reply in replies)
        assert len(tokens) == 1, f"ranks or backends generated other tokens: {tokens}"
        return float(count / max(reply["seconds"] for reply in replies))

    peers = {peer: partial(rate, peer) for peer in BACKENDS}
    for warm_up in peers.values():
        warm_up()
    for peer, rates in run.in_turn(peers).items():
        run.add(Series(f"{count} tokens at batch 1, {where}", peer, str(cluster.link), "tokens/s", rates))


CASE = Case(
    "tensor-parallel",
    "tensor parallel inference by the backends gloo and p4reduce: tokens a second at batch 1",
    measure,
    needs=(NETWORKS, TRAINING_PACKAGES),
)

"""A reset at any point of a run changes no sum, over each path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pytest

from p4reduce.membership import rejoin
from p4reduce.membership.resync import CollectiveOutcome, resynced
from p4reduce.paths.hosts.layout import HostCollective
from p4reduce.protocol.blocks import Blocks
from p4reduce.protocol.call import Call
from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts.wire.geometry import SMALL
from rigs.cut_runs import CutGroup, run, run_and_close, same
from rigs.host_group import CutHostGroup
from rigs.tree_group import CutTree

pytestmark = pytest.mark.usefixtures("small_and_patient")
PATHS: Final[dict[str, Callable[[pytest.MonkeyPatch, Sequence[int], set[int]], CutGroup]]] = {
    "flat": lambda _, hosts, cuts: CutGroup(len(hosts), cuts),
    "side by side": lambda _, hosts, cuts: CutGroup(len(hosts), cuts, switches_of=lambda epoch: (3, 1, 2)[epoch % 3]),
    "tree": lambda _, hosts, cuts: CutTree(len(hosts), cuts),
    "hosts": CutHostGroup,
    "hosts, all jobs": partial(CutHostGroup, all_jobs=True),
}
"""The group of a path, for ranks on these hosts and for resets in place of these answers. Side by side, each epoch has
another number of switches: first one, then two, then three, and so on. Over hosts, an answer of a
shard's switch is replaced by a reset of this shard's job or of all jobs."""
HOSTS = {"0 0": (0, 0), "0 1 1": (0, 1, 1), "0 0 1 1": (0, 0, 1, 1)}


@pytest.fixture(scope="module")
def undisturbed() -> dict[int, list[list[Any]]]:
    """The results of every rank when each sends for itself and nothing is reset, by world size."""
    found = {}
    for world_size in (2, 3, 4):
        with LocalGroup(world_size, geometry=SMALL, slots=4) as group:
            found[world_size] = group.run(run)
    return found


@pytest.mark.fault(
    "a reset instead of any one answer of the switch, ranks with `rejoin=True`: every rank gets the sums of an "
    "undisturbed run, whichever ranks had the last answer"
)
@pytest.mark.fault(
    "a reset of the job, of one shard's or of all jobs instead of an answer of the switch, ranks of hosts with "
    "`rejoin=True`: the same bits on every rank"
)
@pytest.mark.parametrize(
    ("path", "hosts", "every"),
    [("flat", "0 0", 1), ("tree", "0 0", 1), ("side by side", "0 0", 1)]
    + [
        (path, hosts, every)
        for path in ("hosts", "hosts, all jobs")
        for hosts, every in (("0 0", 5), ("0 1 1", 11), ("0 0 1 1", 17))
    ],
)
def test_a_reset_changes_no_sum(
    undisturbed: dict[int, list[list[Any]]], monkeypatch: pytest.MonkeyPatch, path: str, hosts: str, every: int
) -> None:
    """One of `every` answers is cut, each in a run of its own."""
    caught_up = set()

    def noted(call: Call, source: Blocks, outcome: CollectiveOutcome) -> HostCollective:
        caught_up.add("refused" if outcome.refusals else call.kind.name)
        return resynced(call, source, outcome)

    monkeypatch.setattr(rejoin, "resynced", noted)
    make, wanted = partial(PATHS[path], monkeypatch, HOSTS[hosts]), undisturbed[len(HOSTS[hosts])]
    with make(set()) as group:
        assert all(same(*pair) for pair in zip(group.run(run), wanted, strict=True))
        answers = group.answers
    assert answers > 40
    for cut in range(path == "hosts, all jobs", answers, every):
        with make({cut}) as group:
            found = group.run(run_and_close)
            assert all(same(*pair) for pair in zip(found, wanted, strict=True)), f"cut at answer {cut}"
            assert group.epoch > 7 and not group.cuts
    if every == 1:
        assert caught_up == {"ALL_REDUCE", "BROADCAST", "BARRIER", "ALL_GATHER", "refused"}, "some fell between ranks"


@pytest.mark.fault(
    "12 resets a run, also while ranks with `rejoin=True` rejoin: every rank gets the sums of an undisturbed run"
)
@pytest.mark.parametrize(
    ("path", "hosts", "seed"),
    [
        *(("flat", "0 1 1", seed) for seed in range(15)),
        *((path, "0 1 1", seed) for path in ("tree", "side by side") for seed in range(5)),
        *zip(("hosts, all jobs", "hosts") * 2, (*HOSTS, "0 0"), range(4), strict=True),
    ],
)
def test_many_resets_also_during_recovery(
    undisturbed: dict[int, list[list[Any]]], monkeypatch: pytest.MonkeyPatch, path: str, hosts: str, seed: int
) -> None:
    longest = 40 if "hosts" in path else 25
    cuts = set(np.cumsum(np.random.default_rng(seed).integers(1, longest, 12)).tolist())
    with PATHS[path](monkeypatch, HOSTS[hosts], cuts) as group:
        found = group.run(run_and_close)
        assert all(same(*pair) for pair in zip(found, undisturbed[group.world_size], strict=True))
        assert group.epoch >= 10 or "hosts" in path

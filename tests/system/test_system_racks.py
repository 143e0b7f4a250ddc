"""Switches in a tree, as processes on the loopback interface: the sums, the bytes between them, and their ends."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import p4reduce
from p4reduce_contracts.jobs.answers import JobStats
from p4reduce_contracts.jobs.client import JobClient
from rigs.survivors import LIMIT_S, Steps, train
from rigs.system import ROOT, System, running_system

RACKS = 2


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[System]:
    with running_system(tmp_path, "default", RACKS) as system:
        yield system


def counted(client: JobClient, job: str) -> dict[str, JobStats]:
    """The job's counters by switch."""
    return {stats.switch: stats for stats in client.stats(job).jobs}


def test_the_trunk_carries_a_quarter_of_what_four_ranks_a_rack_send(tree: System) -> None:
    ranks, elements = 4 * RACKS, 1 << 16
    address = tree.controller.address("jobs on")
    given = [np.random.default_rng(rank).normal(size=elements).astype(np.float32) for rank in range(ranks)]

    def work(rank: int) -> tuple[np.ndarray, int, int]:
        with p4reduce.join(
            "sums",
            rank=rank,
            world_size=ranks,
            controller=address,
            timeout_s=LIMIT_S,
            collective_timeout_s=LIMIT_S,
            switch=tree.switch_of(rank, ranks),
        ) as comm:
            total = comm.all_reduce(given[rank])
            stats = comm.stats
            comm.barrier()  # all have their results
            return total, stats.bytes_up, stats.bytes_down

    with JobClient(address) as client, ThreadPoolExecutor(ranks) as pool:
        client.create_job("sums", ranks)
        found = list(pool.map(work, range(ranks)))
        switches = counted(client, "sums")
    for total, _, _ in found:
        np.testing.assert_array_equal(total, found[0][0])
        np.testing.assert_allclose(total, np.sum(given, axis=0, dtype=np.float64), rtol=1e-4, atol=1e-5)
    root, leaves = switches.pop(ROOT), list(switches.values())
    assert len(leaves) == RACKS
    for leaf in leaves:
        assert leaf.contributions.packets == 4 * leaf.results.packets
    assert root.contributions.packets == sum(leaf.results.packets for leaf in leaves)
    up = root.contributions.bytes / sum(leaf.contributions.bytes for leaf in leaves)
    assert 0.25 <= up < 0.26, up
    down = sum(leaf.parent_answers.bytes for leaf in leaves) / sum(received for _, _, received in found)
    assert 0.23 < down < 0.26, down


@pytest.mark.parametrize("killed", ["leaf2", ROOT])
def test_sums_are_right_after_a_switch_of_the_tree_is_killed(tree: System, killed: str) -> None:
    ranks = 2 * RACKS
    address = tree.controller.address("jobs on")
    with JobClient(address) as client:
        client.create_job("train", ranks, slots=8)
        steps = Steps(ranks)
        with ThreadPoolExecutor(ranks) as pool:
            found = [
                pool.submit(train, address, rank, steps, switch=tree.switch_of(rank, ranks)) for rank in range(ranks)
            ]
            try:
                for _ in range(2):
                    steps.wait_more(5)
                    if killed == ROOT:
                        tree.switch.end(signal.SIGKILL)
                        tree.start_switch()
                    else:
                        tree.leaves[killed].end(signal.SIGKILL)
                        tree.start_leaf(killed)
                steps.wait_more(5)
                assert set(counted(client, "train")) == {ROOT, "leaf1", "leaf2"}
            finally:
                steps.stop()
            epochs = [each.result(LIMIT_S) for each in found]
    assert len(epochs[0] | epochs[-1]) == 3

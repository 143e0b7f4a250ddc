"""Switches in a tree, as processes on the loopback interface: the sums, the bytes and the links between them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

import p4reduce
from p4reduce_contracts.jobs.answers import JobStats, SwitchInfo
from p4reduce_contracts.jobs.client import JobClient
from rigs.limits import LIMIT_S
from rigs.networks import RACKS
from rigs.system import ROOT, System, running_system
from rigs.udp_relay import PathConditions, UdpRelay


def counted(client: JobClient, job: str) -> dict[str, JobStats]:
    """The job's counters by switch."""
    return {stats.switch: stats for stats in client.stats(job).jobs}


@pytest.mark.parametrize("wide_system", [RACKS], indirect=True)
def test_the_trunk_carries_a_quarter_of_what_four_ranks_a_rack_send(wide_system: System) -> None:
    ranks, elements = 4 * RACKS, 1 << 16
    address = wide_system.controller.address("jobs on")
    given = [np.random.default_rng(rank).normal(size=elements).astype(np.float32) for rank in range(ranks)]

    def work(rank: int) -> tuple[np.ndarray, int]:
        with p4reduce.join(
            "sums",
            rank=rank,
            world_size=ranks,
            controller=address,
            timeout_s=LIMIT_S,
            collective_timeout_s=LIMIT_S,
            switch=wide_system.switch_of(rank, ranks),
        ) as comm:
            total = comm.all_reduce(given[rank])
            comm.barrier()  # all have their results
            return total, comm.stats.rounds

    with JobClient(address) as client, ThreadPoolExecutor(ranks) as pool:
        client.create_job("sums", ranks)
        found = list(pool.map(work, range(ranks)))
        switches = counted(client, "sums")
    for total, _ in found:
        np.testing.assert_array_equal(total, found[0][0])
        np.testing.assert_allclose(total, np.sum(given, axis=0, dtype=np.float64), rtol=1e-4, atol=1e-5)
    root, leaves = switches.pop(ROOT), list(switches.values())
    assert len(leaves) == RACKS
    rounds = root.results.packets
    for leaf in leaves:
        assert leaf.contributions.packets == 4 * leaf.results.packets
        answers = leaf.parent_answers.packets
        assert rounds <= answers <= rounds + leaf.duplicates.packets, "each once, but for what ranks repeated"
    assert root.contributions.packets == sum(leaf.results.packets for leaf in leaves)
    up = root.contributions.bytes / sum(leaf.contributions.bytes for leaf in leaves)
    assert 0.25 <= up < 0.26, up
    assert all(0.9 * rounds < received <= rounds for _, received in found), "all but the close's, on each of four ranks"


@pytest.mark.fault(
    "a link between switches loses all frames, up or down: `controller switches`, the log and "
    "`p4reduce_controller_link_up` report which HELLOs do not arrive; ACTIVE jobs are not reset"
)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("ways", "lost"),
    [
        (("up",), r"that leaf\d sends out of port 500 does not arrive at root any more$"),
        (("down",), r"that root sends out of port \d+ does not arrive at leaf\d any more$"),
    ],
    ids=["up", "down"],
)
def test_a_link_that_loses_all_frames_is_silent_until_it_carries_them_again(
    tmp_path: Path, ways: tuple[str, ...], lost: str
) -> None:
    relays = []
    with ExitStack() as stack:

        def path(switch: str, address: str) -> str:
            host, _, port = address.rpartition(":")
            relays.append(stack.enter_context(UdpRelay((host, int(port)), PathConditions(), seed=1)))
            return "{}:{}".format(*relays[-1].address)

        system = stack.enter_context(running_system(tmp_path, racks=RACKS, path=path))
        client = stack.enter_context(JobClient(system.controller.address("jobs on")))
        wait_until(lambda: not any(switch.link_problem for switch in client.list_switches()))
        relays[0].conditions = PathConditions(drop=1.0, ways=ways)
        wait_until(lambda: all(re.search(f"is silent: .*{lost}", leaf.link_problem) for leaf in leaves(client)))
        assert [switch.problem for switch in client.list_switches()] == [""] * (1 + RACKS)
        relays[0].conditions = PathConditions()
        wait_until(lambda: not any(switch.link_problem for switch in client.list_switches()))


def leaves(client: JobClient) -> list[SwitchInfo]:
    return [switch for switch in client.list_switches() if switch.parent]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)

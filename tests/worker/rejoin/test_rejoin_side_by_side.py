"""Ranks with `rejoin=True` over switches side by side that the controller loses and finds again."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import p4reduce
from p4reduce import Communicator
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_controller.switches import connection, reconciler
from p4reduce_switch.p4runtime import Server
from rigs.limits import LIMIT_S
from rigs.local_system import LocalSystem, local_system

RANKS = range(2)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def restart_p4runtime(local: LocalSystem, name: str) -> None:
    """The controller finds the switch again."""
    switch = local.switches[name]
    switch.server = Server(switch.switch, switch.address("P4Runtime"))
    switch.server.start()


@pytest.mark.fault(
    "the controller loses one of three switches side by side, later another, while ranks with `rejoin=True` sum: they "
    "go on over the others, and take the first one back in the next epoch"
)
def test_sums_go_on_over_the_switches_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "_LOST_AFTER_S", 0.05)
    monkeypatch.setattr(connection, "LONGEST_PAUSE_S", 0.1)
    with (
        local_system(tmp_path, 2, beside=True) as local,
        JobClient(local.address) as client,
        ThreadPoolExecutor(len(RANKS)) as ranks,
    ):
        client.create_job("train", len(RANKS), 4)

        def join(rank: int) -> Communicator:
            options = {"controller": local.address, "timeout_s": LIMIT_S, "rejoin": True}
            return p4reduce.join("train", rank=rank, world_size=len(RANKS), **options)

        comms = list(ranks.map(join, RANKS))

        def used() -> set[str]:
            """Sum on all ranks, and return the switches that they have then."""
            own = np.arange(5000, dtype=np.int32)
            for total in ranks.map(lambda comm: comm.all_reduce(own), comms):
                np.testing.assert_array_equal(total, own * len(RANKS))
            (names,) = {tuple(each.name for each in comm.lease.switches) for comm in comms}
            return set(names)

        every = set(local.switches)
        first, second, third = sorted(every)
        assert used() == every
        local.switches[first].server.stop()
        wait_for(lambda: used() == {second, third})
        restart_p4runtime(local, first)
        wait_for(lambda: all(each.problem is None for each in client.list_switches()))
        assert used() == {second, third}, "it is taken in the next epoch"
        local.switches[second].server.stop()
        wait_for(lambda: used() == {first, third})
        for comm in comms:
            comm.close()

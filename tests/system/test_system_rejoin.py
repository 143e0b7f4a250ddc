"""`join(rejoin=True)` with real kills: a switch, alone or in a tree, and the controller end and come back."""

from __future__ import annotations

import signal
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import pytest

pytest.importorskip("torch")

from p4reduce_contracts.jobs import lease
from p4reduce_contracts.jobs.client import JobClient
from rigs.limits import LIMIT_S, wait_until
from rigs.networks import KILLED
from rigs.survivors import RANKS, Steps, train
from rigs.system import System


def ranks_of(system: System) -> int:
    """Return the ranks of a job: RANKS at each switch that has ranks."""
    return RANKS * max(1, len(system.leaves))


def begin(pool: Executor, system: System, steps: Steps) -> list[Future[set[int]]]:
    """Create the job and start its ranks; each ends with the epochs that it saw."""
    address, ranks = system.controller.address("jobs on"), ranks_of(system)
    with JobClient(address) as client:
        client.create_job("train", ranks, slots=8)
    return [pool.submit(train, address, rank, steps, system.switch_of(rank, ranks)) for rank in range(ranks)]


@pytest.mark.fault(
    "SIGKILL of a leaf of three switches, twice, then of it and the controller, under "
    "ranks with `rejoin=True`: they join again and finish the collective that was interrupted"
)
@pytest.mark.fault(
    "the controller is away for longer than its dead time, ranks with `rejoin=True`: they wait for it, join "
    "again and finish the collective"
)
@pytest.mark.parametrize(("system", "killed"), [KILLED["leaf"]], indirect=["system"])
def test_sums_are_right_after_switch_and_controller_are_killed(
    system: System, killed: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Until the ranks give the controller up they sum without it; then they wait for it, each at its own moment."""
    steps = Steps(ranks_of(system))
    with ThreadPoolExecutor(ranks_of(system)) as pool:
        ranks = begin(pool, system, steps)
        try:
            for _ in range(2):
                steps.wait_more(5)
                system.kill_switch(killed)
                system.start_switch(killed)
            steps.wait_more(5)
            system.kill_switch(killed)
            system.controller.end(signal.SIGKILL)
            system.start_switch(killed)
            system.start_controller()
            steps.wait_more(5)
            with JobClient(system.controller.address("jobs on")) as client:
                assert {counted.switch for counted in client.stats("train").jobs} == {system.root, *system.leaves}
            caplog.clear()
            system.controller.end(signal.SIGKILL)
            monkeypatch.setattr(lease, "DEAD_AFTER_S", 1.0)
            wait_until(
                lambda: all(f"rank {rank} waits to join job 'train'" in caplog.text for rank in range(len(ranks))),
                "no rank goes on alone",
            )
            monkeypatch.undo()
            system.start_controller()
            steps.wait_more(5)
        finally:
            steps.stop()
        epochs = [rank.result(LIMIT_S) for rank in ranks]
    assert len(set().union(*epochs)) == 5 and len({max(each) for each in epochs}) == 1

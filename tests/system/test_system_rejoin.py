"""`join(rejoin=True)` with real kills: a switch, alone or in a tree, and the controller end and come back."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("torch")

from p4reduce_contracts.jobs import lease
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_lab.training import find_script
from rigs.elastic_runs import begun
from rigs.fork_server import ForkServer
from rigs.limits import LIMIT_S, wait_until
from rigs.networks import KILLED
from rigs.survivors import RANKS, Steps, train
from rigs.system import System, running_system

SCRIPT = find_script().with_name("elastic.py")
STEPS = 120


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


def weights(outputs: Sequence[str]) -> set[str]:
    text = "".join(outputs)
    found = re.findall(r"rank \d: \d+ steps, weights ([0-9a-f]+)", text)
    assert len(found) == RANKS, text
    assert re.findall(r"launch (\d+) goes on after step 0", text) == ["0"] * RANKS, "no process was started anew"
    assert "0 steps were redone" in text
    return set(found)


def elastic(server: ForkServer, folder: Path, system: System) -> list[str]:
    """Train examples/elastic.py with files in `folder`; return what each rank printed."""
    controller = system.controller.address("jobs on")
    with JobClient(controller) as client:
        client.create_job(folder.name, RANKS, slots=8)
    folder.mkdir()
    command = [str(SCRIPT), f"--job={folder.name}", f"--folder={folder}", f"--steps={STEPS}", f"--every={STEPS}"]
    command += ["--compressor=adacomp", "--rejoin"]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "P4REDUCE_CONTROLLER": controller}
    switch_of = system.switch_of
    return server.launch(folder, RANKS, *command, environment=environment, timeout_s=LIMIT_S, switch_of=switch_of)


@pytest.mark.fault(
    "SIGKILL of a leaf under DDP training with `rejoin=True`: training continues in the same processes; "
    "weights equal those of an undisturbed run over one switch"
)
@pytest.mark.slow
@pytest.mark.parametrize(("system", "killed"), [KILLED["leaf"]], indirect=["system"])
def test_training_continues_in_the_same_processes(
    tmp_path: Path, system: System, killed: str, torch_server: ForkServer
) -> None:
    undisturbed, folder = tmp_path / "one switch", tmp_path / "disturbed"
    undisturbed.mkdir()
    with running_system(undisturbed) as one_switch:
        expected = weights(elastic(torch_server, undisturbed / "undisturbed", one_switch))

    def wait_begun(step: int) -> None:
        wait_until(lambda: begun(folder) >= step or training.done())

    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(elastic, torch_server, folder, system)
        wait_begun(20)
        system.kill_switch(killed)
        system.start_switch(killed)
        outputs = training.result(2 * LIMIT_S)
    assert weights(outputs) == expected and len(expected) == 1, "on all ranks, as if nothing had happened"
    assert "job reset job=disturbed" in (tmp_path / "controller.log").read_text()

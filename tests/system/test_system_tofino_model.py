"""Jobs over the open SDE's model of a Tofino under our controller, with hosts in network namespaces."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from p4reduce_lab.processes import P4REDUCE, Child
from p4reduce_lab.training import Plan, Result
from p4reduce_runtime.addresses import answers
from p4reduce_testbed import targets
from p4reduce_testbed import testbed as testbeds
from p4reduce_testbed.cli import TOPOLOGIES
from p4reduce_testbed.topology import Topology, load
from p4reduce_testbed.train import check_sums, train
from rigs.limits import LIMIT_S, wait_until
from rigs.tofino_model import NEEDS_MODEL, compiled, one_model

pytestmark = NEEDS_MODEL
ADACOMP = Plan(epochs=1, variants=("p4reduce-adacomp",))
RANK = """
import sys, pathlib
import numpy as np
import p4reduce
stop, number = pathlib.Path(sys.argv[1]), 0
with p4reduce.join(rejoin=True, timeout_s=600) as comm:
    while True:
        given = [np.random.default_rng([number, rank]).integers(-2**31, 2**31, 300).astype(np.int32)
                 for rank in range(comm.world_size)]
        own = np.append(given[comm.rank], np.int32(comm.rank == 0 and stop.exists()))
        total = comm.all_reduce(own, timeout_s=600)
        with np.errstate(over="ignore"):
            assert np.array_equal(total[:-1], sum(given)), f"sum {number}"
        number += 1
        print(f"sum {number} in epoch {comm.lease.epoch}", flush=True)
        if total[-1]:
            break
"""


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("tofino1-4x8", tmp_path_factory.getbasetemp())


def sums_of(child: Child) -> list[tuple[int, int]]:
    """The sums that a rank has written, with their epochs."""
    words = [line.split() for line in child.log.read_text().splitlines() if line.startswith("sum ")]
    return [(int(line[1]), int(line[4])) for line in words if len(line) == 5]


def wait_more(ranks: list[Child], count: int = 10) -> int:
    """Wait until each has that many more sums than any has now; return the epoch of the last."""
    target = max((sums[-1][0] for rank in ranks if (sums := sums_of(rank))), default=0) + count

    def reached() -> bool:
        for rank in ranks:
            rank.check_running()
        return all((sums := sums_of(rank)) and sums[-1][0] >= target for rank in ranks)

    wait_until(reached)
    return sums_of(ranks[0])[-1][1]


def p4reduce(testbed: testbeds.Testbed, *words: str, host: int = 0) -> str:
    """What a command prints on a host."""
    where = testbed.topology.hosts[host]
    command = [*testbed.network.namespace(where).within, *P4REDUCE, *words]
    environment = {**os.environ, "P4REDUCE_INSECURE": "1", "P4REDUCE_CONTROLLER": testbed.system.controller}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def again(testbed: testbeds.Testbed, *children: Child) -> list[Child]:
    """Kill processes and start the same commands in their order."""
    commands = []
    for child in children:
        words = Path(f"/proc/{child.pid}/cmdline").read_bytes().split(b"\0")[:-1]
        inside = Path(f"/proc/{child.pid}/cwd").readlink()
        commands.append(["env", f"--chdir={inside}", *map(os.fsdecode, words)])
    for child in children:
        os.kill(child.pid, signal.SIGKILL)
    for child in children:
        child.wait(LIMIT_S)
    return [
        testbed.children.start(f"{child.name} again", command)
        for child, command in zip(children, commands, strict=True)
    ]


def check_training(trained: list[Result], topology: Topology, folder: Path) -> None:
    """AdaComp's training has the bits that it has over the v1model program."""
    settings = testbeds.Settings("netns", "embedded", "tofino1-4x8")
    with testbeds.running_testbed(topology, settings, folder / "v1model") as testbed:
        wanted = train(testbed, ADACOMP)
    assert [(each["weights"], each["losses"]) for each in trained] == [
        (each["weights"], each["losses"]) for each in wanted
    ]
    assert all(each["rates"]["all"] > 50 for each in trained) and len(trained) == 1


def test_a_job_over_the_model_goes_on_through_restarts(tmp_path: Path, pipeline: Path) -> None:
    topology = load(TOPOLOGIES / "four_workers.json")
    stop = tmp_path / "stop"
    settings = testbeds.Settings("netns", targets.MODEL, str(pipeline))
    with one_model(), testbeds.running_testbed(topology, settings, tmp_path) as testbed:
        sums = check_sums(testbed)
        assert (sums["sums"], sums["mismatched_words"]) == (60, 0)
        trained = train(testbed, ADACOMP)
        assert "ready" in p4reduce(testbed, "controller", "switches")
        assert "round trip" in p4reduce(testbed, "doctor")
        with testbed.system.job("train", 4) as job:
            command = [sys.executable, "-c", RANK, str(stop)]
            ranks = [testbed.start_worker(f"rank {host.rank}", host, command, job) for host in topology.hosts]
            epoch = wait_more(ranks)
            assert "ACTIVE" in p4reduce(testbed, "job", "show", job)
            counted = testbed.system.client.stats(job).jobs[0]
            assert counted.contributions.packets > 0 and counted.results.packets > 0

            again(testbed, testbed.system.controller_process)
            assert wait_more(ranks) == epoch, "the switch's entries are kept, and the job with them"
            wait_until(lambda: "ready" in p4reduce(testbed, "controller", "switches"))

            *_, driver = again(testbed, *testbed.system.switches)
            (switch,) = testbed.system.client.list_switches()
            driver.wait_ready(lambda: answers(switch.p4runtime), LIMIT_S)
            assert wait_more(ranks) > epoch, "its registers are new, and so is the epoch"

            stop.touch()
            for rank in ranks:
                rank.wait(LIMIT_S)
                assert rank.status == 0, rank.log.read_text()
    check_training(trained, topology, tmp_path)


@pytest.mark.skipif(not all(map(shutil.which, ("nft", "tc"))), reason="needs nft (nftables) and tc (iproute2) on PATH")
def test_two_ranks_train_over_a_link_that_loses_frames(tmp_path: Path, pipeline: Path) -> None:
    topology = load(TOPOLOGIES / "two_slow_workers.json")
    settings = testbeds.Settings("netns", targets.MODEL, str(pipeline))
    with one_model(), testbeds.running_testbed(topology, settings, tmp_path) as testbed:
        sums = check_sums(testbed)
        trained = train(testbed, ADACOMP)
    assert (sums["sums"], sums["mismatched_words"]) == (60, 0)
    assert sums["retransmissions"] > 0
    check_training(trained, topology, tmp_path)

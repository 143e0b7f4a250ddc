"""Kill members of a process group, and let others join, at random; the others train on in the same processes.

    python tests/system/members.py --steps 1000 --over memory        # or: make members STEPS=1000
    python tests/system/members.py --steps 1000 --over switches      # three side by side
    python tests/system/members.py --steps 1000 --over launch        # each on a host, with the launch's own switches
    python tests/system/members.py --steps 1000 --backend gloo       # for comparison

Two to four members (member.py). Every ten steps one is killed, or joins. At the end all have the weights of a replay
with the same members in each step. Needs torch 2.14.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path.extend(str(Path(__file__).resolve().parents[2] / tests) for tests in ("tests", "softswitch/tests"))

import torch
import torch.distributed as dist

from p4reduce_contracts.jobs.client import JobClient
from rigs.fork_server import Forked, ForkServer, fork_server
from rigs.limits import LIMIT_S, wait_until
from rigs.system import running_system
from system.member import ENDS, JOINS, WEIGHTS, gradient, stepped

FEWEST, MOST = 2, 4
EVERY: Final = 10
PRELOADED: Final = ("p4reduce.pytorch.backend.group", "p4reduce.membership.join", "p4reduce_contracts.jobs.client")


@dataclass(frozen=True)
class Report:
    """The outcome of a run."""

    steps: int
    killed: int
    joined: int
    wrong: int
    pauses: list[tuple[float, float, str]]
    """Of each survivor of each change: seconds between two steps, those of the reconfigure, and what changed."""

    def __str__(self) -> str:
        lines = [f"{self.steps} steps, {self.killed} killed, {self.joined} joined, {self.wrong} wrong sums"]
        for kind in ("shrink", "grow"):
            of_kind = [pause for pause in self.pauses if pause[2] == kind]
            for what, at in (("pause", 0), ("of which reconfigure", 1)):
                seconds = sorted(float(pause[at]) for pause in of_kind) or [0.0]
                middle, late = statistics.median(seconds), seconds[int(0.95 * (len(seconds) - 1))]
                lines.append(f"{kind}: {what} median {middle:.3f} s, 95 % {late:.3f} s, most {seconds[-1]:.3f} s")
        return "\n".join(lines)


class Run:
    def __init__(
        self,
        folder: Path,
        server: ForkServer,
        backend: str,
        steps: int,
        seed: int,
        environment: Mapping[str, str],
        pace_s: float = 0.01,
        hosts: bool = False,
    ) -> None:
        """`hosts`: whether each member has a host of its own."""
        self.folder, self.server, self.backend, self.steps, self.pace_s = folder, server, backend, steps, pace_s
        self.hosts = hosts
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        self.choice = random.Random(seed)
        self.store = dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=LIMIT_S))
        self.members: dict[int, Forked] = {}
        self.spares: dict[int, Forked] = {}
        self.began = self.generation = self.killed = self.joined = 0

    def run(self) -> Report:
        try:
            for _ in range(MOST):
                self.start(self.members)
            self.change(dict.fromkeys(self.members, 0))
            self.prepare()
            while self.wait_for_step() < self.steps:
                grow = len(self.members) == FEWEST or (len(self.members) < MOST and self.choice.random() < 0.5)
                self.grow() if grow else self.shrink()
            return self.end()
        finally:
            for member in (*self.members.values(), *self.spares.values()):
                member.close()

    def prepare(self) -> None:
        """Start a further one, which waits until it joins."""
        self.spare = self.start(self.spares)

    def start(self, whose: dict[int, Forked]) -> int:
        number, self.began = self.began, self.began + 1
        log = self.folder / f"member-{number}.log"
        arguments = (str(self.store.port), str(number), self.backend, str(self.pace_s))
        script = str(Path(__file__).with_name("member.py"))
        environment = self.environment | ({"P4REDUCE_HOSTID": f"host {number}"} if self.hosts else {})
        whose[number] = self.server.start(log, script, *arguments, environment=environment)
        return number

    def wait_for_step(self) -> int:
        """Wait until the present members have made EVERY steps more; return how many were made in all."""
        wait_until(lambda: self.at()[0] == self.generation)
        until = self.at()[1] + EVERY
        wait_until(lambda: self.at()[1] >= until)
        return self.at()[1]

    def at(self) -> tuple[int, int]:
        self.check()
        generation, step = json.loads(self.store.get("at")) if self.store.check(["at"]) else (0, 0)
        return generation, step

    def check(self) -> None:
        for number in (*self.members, *self.spares):
            if self.store.check([f"failed/{number}"]):
                raise AssertionError(f"member {number}: {self.store.get(f'failed/{number}').decode()}")

    def grow(self) -> None:
        before = dict.fromkeys(self.members, self.generation)
        joins, self.joined = self.spare, self.joined + 1
        wait_until(lambda: self.check() or self.store.check([f"handle/0/{joins}"]))
        self.members |= self.spares
        self.spares.clear()
        self.store.set(f"change/{self.generation}", str(JOINS))
        self.change({**before, joins: 0})
        self.prepare()

    def shrink(self) -> None:
        number = self.choice.choice(sorted(self.members))
        time.sleep(self.choice.uniform(0, 2 * self.pace_s))
        with self.members.pop(number) as killed:
            killed.send_signal(signal.SIGKILL)
        self.killed += 1
        self.change(dict.fromkeys(self.members, self.generation))

    def change(self, left: Mapping[int, int]) -> None:
        """Tell the members of the next generation who they are, once they have left this one, by their numbers."""
        for number, generation in left.items():
            wait_until(lambda key=f"handle/{generation}/{number}": self.check() or self.store.check([key]))  # type: ignore[misc]
        numbers = self.choice.sample(sorted(left), len(left))
        handles = [self.store.get(f"handle/{left[number]}/{number}").decode() for number in numbers]
        self.generation += 1
        told = json.dumps({"generation": self.generation, "numbers": numbers, "handles": handles})
        for number, generation in left.items():
            self.store.set(f"members/{number}/{generation}", told)

    def end(self) -> Report:
        self.store.set(f"change/{self.generation}", str(ENDS))
        results: list[dict[str, Any]] = []
        for number, member in sorted(self.members.items()):
            wait_until(lambda key=f"result/{number}": self.check() or self.store.check([key]))  # type: ignore[misc]
            results.append(json.loads(self.store.get(f"result/{number}")))
            assert member.wait(LIMIT_S) == 0, (self.folder / f"member-{number}.log").read_text()
        self.members.clear()
        replayed = torch.zeros(WEIGHTS)
        for step, generation in enumerate(results[0]["history"]):
            numbers = results[0]["numbers"][str(generation)]
            total = torch.stack([gradient(step, number) for number in numbers]).sum(0)
            replayed = stepped(replayed, total, len(numbers))
        wanted = replayed.view(torch.int32).tolist()
        for result in results:
            assert result["history"] == results[0]["history"], "the members do not agree on their history"
            assert result["weights"] == wanted, "the weights are not those of a replay"
        told = self.store.get("pauses").decode().splitlines() if self.store.check(["pauses"]) else []
        pauses = [(float(pause), float(of_it), str(why)) for pause, of_it, why in map(json.loads, told)]
        return Report(
            len(results[0]["history"]), self.killed, self.joined, sum(result["wrong"] for result in results), pauses
        )


def run_members(
    folder: Path,
    backend: str = "p4reduce",
    over: str = "memory",
    steps: int = 1000,
    seed: int = 1,
    pace_s: float = 0.01,
) -> Report:
    """Run the campaign over a host's memory, "switches" side by side, or those of a "launch" of several hosts.

    AssertionError for what is wrong.
    """
    with ExitStack() as stack:
        server = stack.enter_context(fork_server(folder, PRELOADED))
        environment = {"P4REDUCE_HOSTS": "on"}
        if over == "switches":
            system = stack.enter_context(running_system(folder, switches=3))
            address = system.controller.address("jobs on")
            environment |= {"P4REDUCE_HOSTS": "off", "P4REDUCE_CONTROLLER": address}
        report = Run(folder, server, backend, steps, seed, environment, pace_s, over == "launch").run()
        if over == "switches":
            with JobClient(address) as client:
                wait_until(lambda: not client.list_jobs().jobs)
        return report


def main() -> None:
    """Run it as the command line says, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--backend", default="p4reduce", choices=["p4reduce", "gloo"])
    parser.add_argument("--over", default="memory", choices=["memory", "switches", "launch"])
    parser.add_argument("--pace", type=float, default=0.01, help="seconds that a member computes in a step")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="p4reduce-members-") as folder:
        print(run_members(Path(folder), given.backend, given.over, given.steps, given.seed, given.pace))


if __name__ == "__main__":
    main()

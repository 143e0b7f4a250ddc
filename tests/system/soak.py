"""Everything at once, for hours: four jobs under loss, copies, reordering, damage and kills (docs/reliability.md).

    python tests/system/soak.py --minutes 120               # or: make soak MINUTES=120
    python tests/system/soak.py --seed 17 --legs 1          # leg 17 again

A leg has a controller, a tree of a root and two leaf switches and two switches side by side of its own, a relay before
each switch for all that send to it, and four jobs: at the root, at a leaf, at both leaves, and side by side. Their
ranks check every collective of all kinds, wires, compressors and forms (soak_rank.py). Ranks that have ended with an
error are launched again. What a leg does follows from its seed; when it happens depends on the machine.
OUT/results.json has a record of each leg, OUT/found what was found: the seed, what happened when, the ranks' output and
the last frames.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

if __name__ == "__main__":
    sys.path.extend(str(Path(__file__).resolve().parents[2] / tests) for tests in ("tests", "softswitch/tests"))

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_lab.udp_relay import PathConditions, UdpRelay
from rigs.fork_server import TORCH, Forked, ForkServer, fork_server
from rigs.python_path import PYTHONPATH
from rigs.system import ROOT, running_system
from system.soak_rank import REFUSED_WITH

RANK: Final = Path(__file__).with_name("soak_rank.py")
RACKS: Final = 2
SWITCHES: Final = 3
"""Switches without parent: the root, and two side by side."""
JOBS: Final = {
    "two": [ROOT, ROOT],
    "three": ["leaf1", "leaf1", "leaf1"],
    "racks": ["leaf1", "leaf1", "leaf2", "leaf2"],
    "beside": ["", ""],
}
"""The switches that the ranks of a job send to; "": those side by side."""
SLOTS: Final = 4
STEPS: Final = 300
"""Collectives from one launch of a job to the next, if nothing ends it before."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 12.0
"""Seconds between two kills. A leg has at least one kill, also where its launches took long."""
ENDING_S: Final = 240.0
"""Seconds in which the ranks of a launch end once one of them has: longer than they wait for each other."""
PEACE_S: Final = 480.0
"""Seconds in which the last launches end: nothing is killed any more."""
LOG_CHARACTERS: Final = 20_000
"""Characters of a program's output that the report of a failure shows."""
AFTERMATH_S: Final = 300.0
"""An error so long after a kill is one of its consequences."""
NEEDS_DAMAGE: Final = {"CorruptSumError", "CollectiveMismatchError"}
"""Errors that a kill does not explain, but a damaged frame does."""
FOLLOWING: Final = {"JobResetError", "JoinError"}
"""Errors that another rank's end explains."""
ENDED_ITSELF: Final = re.compile(rf"^(wrong|error): (?!{'|'.join(FOLLOWING)})", re.MULTILINE)


@dataclass
class Launch:
    """All ranks of a job, from their start to their end."""

    number: int
    seed: int
    began: float
    ranks: list[Forked]
    logs: list[Path]
    flipped: int
    """Frames that the relays had damaged before it began."""
    first_end: float | None = None
    killed_rest: bool = False
    victims: set[int] = field(default_factory=set)


@dataclass
class Leg:
    """The counts of one leg, and the problems that it found."""

    seed: int
    seconds: float = 0.0
    conditions: dict[str, Any] = field(default_factory=dict)
    rejoin: dict[str, bool] = field(default_factory=dict)
    right: Counter[str] = field(default_factory=Counter)
    """Collectives of a rank that gave what they had to, by kind."""
    jobs: Counter[str] = field(default_factory=Counter)
    """The same by job."""
    frames: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    launches: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    """The ends of ranks: at their last collective, killed, or by which error."""
    found: list[str] = field(default_factory=list)


class Soak:
    def __init__(  # noqa: PLR0917
        self, folder: Path, seed: int, seconds: float, server: ForkServer, steps: int = STEPS, wrong: int = 0
    ) -> None:
        """`wrong`: the collective from which on rank 0 gives wrong tensors, for the soak's own test; 0: none."""
        self._folder, self._seconds, self._server, self._steps, self._wrong = folder, seconds, server, steps, wrong
        self._random = random.Random(seed)
        self._events: list[str] = []
        self._last_kill = -AFTERMATH_S
        self._launches: dict[str, Launch] = {}
        self._relays: dict[str, UdpRelay] = {}
        self.leg = Leg(seed)

    def run(self) -> Leg:
        """Run it; what it finds is in the leg."""
        drawn, leg = self._random, self.leg
        conditions = PathConditions(
            drop=drawn.choice([0.0, 0.01, 0.05]),
            duplicate=drawn.choice([0.0, 0.02, 0.1]),
            late=drawn.choice([0.0, 0.02, 0.1]),
            flip=drawn.choice([0.0, 0.0, 0.0001]),
        )
        leg.conditions, leg.rejoin = asdict(conditions), {job: drawn.random() < 0.5 for job in JOBS}
        self._began = time.monotonic()
        with ExitStack() as stack:

            def relayed(switch: str, address: str) -> str:
                host, _, port = address.rpartition(":")
                relay = UdpRelay((host, int(port)), conditions, leg.seed + len(self._relays))
                self._relays[switch] = stack.enter_context(relay)
                return "{}:{}".format(*relay.address)

            self._system = stack.enter_context(
                running_system(self._folder, racks=RACKS, path=relayed, switches=SWITCHES)
            )
            self._controller = self._system.controller.address("jobs on")
            with JobClient(self._controller) as client:
                for job, switches in JOBS.items():
                    client.create_job(job, len(switches), slots=SLOTS)
            self._began = time.monotonic()
            try:
                self._train()
            finally:
                for launch in self._launches.values():
                    for rank in launch.ranks:
                        rank.close()
            leg.frames = sum((relay.counts for relay in self._relays.values()), Counter())
            leg.seconds = round(time.monotonic() - self._began, 1)
        return leg

    def keep(self, out: Path) -> None:
        """Write what was found into OUT/found, if anything was."""
        if not self.leg.found:
            return
        texts = {path.name: path.read_text(encoding="utf-8", errors="replace") for path in self._folder.glob("*.log")}
        logs = {name: text[-LOG_CHARACTERS:] for name, text in texts.items()}
        frames = [f"{switch} {line}" for switch, relay in self._relays.items() for line in relay.log()]
        document = {"leg": vars(self.leg), "events": self._events, "logs": logs, "frames": frames}
        kept = out / "found" / f"leg-{self.leg.seed}.json"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print(f"FOUND: {self.leg.found[0]}\n(kept in {kept})", flush=True)

    def _train(self) -> None:
        next_kill = self._random.uniform(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        for job in JOBS:
            self._launch(job)
        while self._launches and not self.leg.found:
            now = time.monotonic() - self._began
            if self._is_killing(now) and now >= next_kill and (self.leg.kills or self._has_begun()):
                self._kill(now)
                next_kill = now + self._random.uniform(FIRST_PAUSE_S, LONGEST_PAUSE_S)
            for job in list(self._launches):
                self._watch(job, now)
            if now > self._seconds + PEACE_S:
                self._find(f"{', '.join(self._launches)}: not at the end {PEACE_S:.0f} s after the last kill")
            time.sleep(0.02)

    def _is_killing(self, now: float) -> bool:
        return now < self._seconds or bool(self._seconds and not self.leg.kills)

    def _has_begun(self) -> bool:
        """Whether each job has summed: a leg that is killed before, on a busy machine, would show nothing."""
        return all(any(b"right: " in log.read_bytes() for log in self._folder.glob(f"*-{job}-*.log")) for job in JOBS)

    def _launch(self, job: str) -> None:
        number, seed = self.leg.launches, self._random.randrange(1 << 31)
        self.leg.launches += 1
        rejoin = "rejoin" if self.leg.rejoin[job] else "anew"
        began = time.monotonic() - self._began
        self._say(began, f"launch {number} of {job}, seed {seed}")
        launch = Launch(number, seed, began, [], [], self._flipped())
        for rank, switch in enumerate(JOBS[job]):
            log = self._folder / f"{number}-{job}-{rank}.log"
            arguments = [
                self._controller,
                job,
                rank,
                len(JOBS[job]),
                switch,
                seed,
                self._steps,
                rejoin,
                self._wrong if rank == 0 else 0,
            ]
            # each rank compresses for itself, as what it compares with does
            environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": PYTHONPATH, "P4REDUCE_HOSTS": "off"}
            launch.ranks.append(self._server.start(log, str(RANK), *map(str, arguments), environment=environment))
            launch.logs.append(log)
        self._launches[job] = launch

    def _kill(self, now: float) -> None:
        victim = self._random.choice(["worker", "root", "leaf", "beside", "controller"])
        job = self._random.choice(sorted(JOBS))
        rank = self._random.randrange(len(JOBS[job]))
        leaf = self._random.choice(sorted(self._system.leaves))
        if victim == "worker":
            launch = self._launches.get(job)
            if launch is None or launch.ranks[rank].poll() is not None:
                return
            launch.ranks[rank].send_signal(signal.SIGKILL)
            launch.victims.add(rank)
            self._say(now, f"kill rank {rank} of {job}")
        elif victim in ("root", "leaf", "beside"):
            switch = {"root": ROOT, "leaf": leaf, "beside": self._random.choice(sorted(self._system.beside))}[victim]
            self._say(now, f"kill {switch}")
            self._system.kill_switch(switch)
            self._system.start_switch(switch)
        else:
            self._say(now, "kill the controller")
            self._system.controller.end(signal.SIGKILL)
            self._system.start_controller()
        self.leg.kills[victim] += 1
        self._last_kill = time.monotonic() - self._began

    def _watch(self, job: str, now: float) -> None:
        """See whether a job's ranks have ended; launch them again while there is time."""
        launch = self._launches[job]
        statuses = [rank.poll() for rank in launch.ranks]
        if all(status is None for status in statuses):
            return
        if launch.first_end is None:
            launch.first_end = now
            launch.killed_rest = any(statuses) and self._random.random() < 0.75  # as torchrun does
        if None in statuses:
            if launch.killed_rest:
                for rank in launch.ranks:
                    rank.send_signal(signal.SIGKILL)
            elif now > launch.first_end + ENDING_S:
                self._find(f"{job}, launch {launch.number}: ranks have ended with {statuses}, and the others not")
            return
        del self._launches[job]
        texts = [log.read_text(encoding="utf-8", errors="replace") for log in launch.logs]
        for rank, (status, text) in enumerate(zip(statuses, texts, strict=True)):
            others = [other for at, other in enumerate(texts) if at != rank]
            self._judge(job, launch, rank, status, text, others, now)
        if self._is_killing(now) and not self.leg.found:
            self._launch(job)

    def _judge(  # noqa: PLR0917
        self, job: str, launch: Launch, rank: int, status: int | None, text: str, others: list[str], now: float
    ) -> None:
        right = re.findall(r"^right: (.*)$", text, re.MULTILINE)
        self.leg.right.update(right)
        self.leg.jobs[job] += len(right)
        where = f"{job}, launch {launch.number}, rank {rank}"
        error = re.search(r"^error: (\w+): (.*)", text, re.MULTILINE)
        if status == 0:
            self.leg.ends["at its last collective"] += 1
        elif status == -signal.SIGKILL and (rank in launch.victims or launch.killed_rest):
            self.leg.ends["killed"] += 1
        elif status == REFUSED_WITH and error:
            name = error[1]
            self.leg.ends[name] += 1
            self._say(now, f"{where}: {name}: {error[2][:200]}")
            killed = self._last_kill > launch.began - AFTERMATH_S
            flipped = self._flipped() > launch.flipped
            follows = name in FOLLOWING and any(ENDED_ITSELF.search(other) for other in others)
            if not (flipped or follows or (killed and name not in NEEDS_DAMAGE)):
                self._find(f"{where}: {name} without a cause: {error[2]}")
        else:
            self._find(f"{where}: status {status}: {text[-2000:]}")

    def _flipped(self) -> int:
        return sum(relay.counts["flipped"] for relay in self._relays.values())

    def _say(self, now: float, what: str) -> None:
        self._events.append(f"{now:.2f} {what}")

    def _find(self, what: str) -> None:
        self._say(time.monotonic() - self._began, f"FOUND: {what}")
        self.leg.found.append(what)


def soak(out: Path, seed: int, leg_s: float, server: ForkServer, more: Callable[[int], bool]) -> list[Leg]:
    """Run legs while `more(legs so far)`; write results.json after each, and what one found into OUT/found."""
    out.mkdir(parents=True, exist_ok=True)
    done: list[Leg] = []
    while more(len(done)):
        with tempfile.TemporaryDirectory(prefix="p4reduce-soak-") as folder:
            running = Soak(Path(folder), seed + len(done), leg_s, server)
            done.append(running.run())
            print(summary(done[-1:]), flush=True)
            running.keep(out)
        document = json.dumps([vars(leg) for leg in done], indent=1) + "\n"
        (out / "results.json").write_text(document, encoding="utf-8")
    return done


def summary(legs: list[Leg]) -> str:
    right, kills, ends, frames = (
        sum((getattr(leg, name) for leg in legs), Counter()) for name in ("right", "kills", "ends", "frames")
    )
    return (
        f"seed {legs[0].seed}: {sum(leg.seconds for leg in legs):.0f} s, {right.total()} collectives right, "
        f"{frames['frames up'] + frames['frames down']} frames, kills {dict(kills)}, "
        f"{sum(leg.launches for leg in legs)} launches, ends {dict(ends)}, found {sum(len(leg.found) for leg in legs)}"
    )


def main() -> int:
    """Run it as the command line says; exit status 1 when something was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1 << 31), help="of the first leg; then one more each"
    )
    parser.add_argument("--leg", type=float, default=60.0, help="seconds of a leg")
    parser.add_argument("--legs", type=int, help="so many legs, however long they take")
    parser.add_argument("--out", type=Path, default=Path("out/soak"))
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    with tempfile.TemporaryDirectory() as folder, fork_server(Path(folder), TORCH) as server:
        legs = soak(
            given.out,
            given.seed,
            given.leg,
            server,
            lambda done: done < given.legs if given.legs is not None else time.monotonic() < until,
        )
    print(summary(legs))
    return 1 if any(leg.found for leg in legs) else 0


if __name__ == "__main__":
    sys.exit(main())

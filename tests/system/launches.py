"""Start and end launches that bring their own switches, in all ways, and count what is left of them.

    python tests/system/launches.py --launches 200 --seed 1 --at-once 2

Two ranks, mostly of two hosts (P4REDUCE_HOSTID), train over the backend without a controller. At a random time one
rank, all of them or torchrun are killed, or they are interrupted as by Ctrl-C; or they end by an exception, or by
themselves; or a switch cannot start. Then no process of theirs is left, no file, and no port, as ports are those of
processes. Launches that run at once have sums of their own; those of one series use one address after each other.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

if __name__ == "__main__":
    sys.path.extend(str(Path(__file__).resolve().parents[2] / tests) for tests in ("tests", "softswitch/tests"))

from p4reduce_lab.addresses import free_port
from rigs.fork_server import TORCH, ForkServer, fork_server
from rigs.limits import wait_until
from rigs.running import with_text

RANKS = 2
MARK = "P4REDUCE_MARK"
LIMIT_S = 180.0
ENDS = ("by itself", "exception", "failed start", "kill one", "kill all", "interrupt all", "kill torchrun")
SCRIPT = """
import os, sys, time, torch, torch.distributed as dist
from torch.distributed.rendezvous import rendezvous
steps, end, hosts, factor = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
rank = int(os.environ["RANK"])
os.environ["P4REDUCE_HOSTID"] = f"host {rank % hosts}"
if end == "failed start" and rank == 1:
    os.environ["P4REDUCE_SWITCH_THREADS"] = "65"
store, _, size = next(rendezvous("env://"))  # torch's wait for a store that has ended is the group's timeout
print("connected", flush=True)
begin = time.monotonic()
dist.init_process_group("p4reduce", store=store, rank=rank, world_size=size)
print(f"begun after {time.monotonic() - begin:.2f} s", flush=True)
for step in range(steps):
    total = torch.ones(50_000) * (rank + 1) * factor
    dist.all_reduce(total)
    assert (total == 3 * factor).all(), "a wrong sum"
if end == "exception":
    raise SystemExit("an exception")
dist.destroy_process_group()
print("ended", flush=True)
"""
TORCHRUN = "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}", "--master-addr=127.0.0.1"


def launch(end: str, source: random.Random, server: ForkServer, port: int, folder: Path, logs: Path) -> tuple[str, str]:
    """Start a launch and end it; return what is wrong after it, "" if nothing is, and what the ranks have printed."""
    mark = secrets.token_hex(8)
    common = {MARK: mark, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(RANKS)}
    environment = os.environ | common | {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    environment.pop("P4REDUCE_CONTROLLER", None)
    script = logs / "script.py"
    script.write_text(SCRIPT)
    steps = 300 if end == "kill torchrun" else 1_000_000 if end in ENDS[3:] else 20  # its ranks train to their end
    hosts = RANKS if end == "failed start" else source.choice((1, RANKS, RANKS))
    arguments = [str(script), str(steps), end, str(hosts), str(source.randrange(1, 1000))]
    if end == "kill torchrun":
        with (logs / "0").open("wb") as log:
            command = [sys.executable, *TORCHRUN, f"--master-port={port}", f"--log-dir={logs / 'torchrun'}", *arguments]
            torchrun = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        wait_until(lambda: (logs / "0").read_text().count("connected") == RANKS)
        time.sleep(source.uniform(0.0, 10.0))
        torchrun.kill()
        torchrun.wait()
    else:
        ranks = [
            server.start(logs / str(rank), *arguments, environment=environment | {"RANK": str(rank)})
            for rank in range(RANKS)
        ]
        if end in ENDS[3:]:
            time.sleep(source.uniform(0.2, 10.0))
            number = signal.SIGINT if end == "interrupt all" else signal.SIGKILL
            for rank in ranks if end != "kill one" else [source.choice(ranks)]:
                rank.send_signal(number)
            time.sleep(source.uniform(0.0, 2.0))
            for rank in ranks:
                rank.send_signal(signal.SIGTERM)  # as torchrun does where one has ended
        for rank in ranks:
            with suppress(TimeoutError):
                rank.wait(LIMIT_S)
    until = time.monotonic() + LIMIT_S
    while (with_text(mark) or list(folder.iterdir())) and time.monotonic() < until:
        time.sleep(0.2)
    left = [f"process {pid}: {command}" for pid, command in with_text(mark).items()]
    left += [file.name for file in folder.iterdir()]
    problems = [f"left: {', '.join(left)}"] if left else []
    if end != "kill torchrun" and (late := [str(rank.pid) for rank in ranks if rank.poll() is None]):
        problems.append(f"ranks did not end: {late}")
        for rank in ranks:
            rank.close()
    said = [file.read_text() for file in sorted(logs.glob("[01]"))]
    expected = {"by itself": "ended", "failed start": "the switch of this launch ended: .* 65 "}.get(end, "")
    if any("AssertionError: a wrong sum" in text for text in said) or not all(
        re.search(expected, text) for text in said
    ):
        problems.append("the ranks printed:\n" + "\n".join(said))
    return "; ".join(problems), "\n".join(said)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=1, help="Launches that run at the same time.")
    parser.add_argument("--end", choices=ENDS, help="End all of them so. [default: in all ways]")
    given = parser.parse_args(arguments)
    ends, problems, begun_s = Counter[str](), list[str](), list[float]()

    def series(first: int) -> None:
        source, port = random.Random(f"{given.seed} {first}"), free_port()
        for number in range(first, given.launches, given.at_once):
            end = given.end or ENDS[number % len(ENDS)]
            folder, logs = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
            try:
                problem, said = launch(end, source, server, port, folder, logs)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
                shutil.rmtree(logs, ignore_errors=True)
            ends[end] += 1
            begun_s.extend(map(float, re.findall(r"begun after (\S+) s", said)))
            if problem:
                problems.append(problem)
                print(f"launch {number}, {end}: {problem}", flush=True)

    with (
        tempfile.TemporaryDirectory() as place,
        fork_server(Path(place), TORCH) as server,
        ThreadPoolExecutor(given.at_once) as pool,
    ):
        list(pool.map(series, range(given.at_once)))
    ways = ", ".join(f"{count} {end}" for end, count in ends.items())
    times = f"{statistics.median(begun_s):.1f} s in the median, {max(begun_s):.1f} at most" if begun_s else "never done"
    print(f"{given.launches} launches ({ways}): {len(problems)} left something; init_process_group: {times}")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())

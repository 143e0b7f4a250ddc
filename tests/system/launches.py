"""Start and end launches that bring their own switches, in all ways, and count what is left of them.

    python tests/system/launches.py --launches 200 --seed 1

Two ranks of one host train over the backend without a controller. At a random time one rank or all of them are killed,
or interrupted as by Ctrl-C; or they end by an exception, or by themselves. Then no process of theirs is left, no file,
and no port, as ports are those of processes.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.extend(str(Path(__file__).resolve().parents[2] / tests) for tests in ("tests", "softswitch/tests"))

from p4reduce_lab.addresses import free_port
from rigs.running import with_text

RANKS = 2
MARK = "P4REDUCE_MARK"
LIMIT_S = 180.0
ENDS = ("by itself", "exception", "kill one", "kill all", "interrupt all")
SCRIPT = """
import sys, torch, torch.distributed as dist
dist.init_process_group("p4reduce")
print("begun", flush=True)
for step in range(int(sys.argv[1])):
    total = torch.ones(50_000) * (dist.get_rank() + 1)
    dist.all_reduce(total)
    assert (total == 3).all(), "a wrong sum"
if sys.argv[2] == "exception":
    raise SystemExit("an exception")
dist.destroy_process_group()
print("ended", flush=True)
"""


def launch(end: str, source: random.Random, folder: Path) -> str:
    """Start a launch and end it; return what is wrong after it, "" if nothing is."""
    mark = secrets.token_hex(8)
    common = {MARK: mark, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(RANKS)}
    environment = os.environ | common | {"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    environment.pop("P4REDUCE_CONTROLLER", None)
    killed = end in ENDS[2:]
    arguments = [sys.executable, "-c", SCRIPT, "1000000" if killed else "20", end]
    ranks = [
        subprocess.Popen(
            arguments,
            env=environment | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(RANKS)
    ]
    if killed:
        time.sleep(source.uniform(0.5, 12.0))
        number = signal.SIGINT if end == "interrupt all" else signal.SIGKILL
        for rank in ranks if end != "kill one" else [source.choice(ranks)]:
            rank.send_signal(number)
        time.sleep(source.uniform(0.0, 2.0))
        for rank in ranks:
            rank.terminate()  # as torchrun does where one has ended
    said = []
    for rank in ranks:
        try:
            said.append(rank.communicate(timeout=LIMIT_S)[0])
        except subprocess.TimeoutExpired:
            rank.kill()
            said.append(rank.communicate()[0] + "\na rank did not end")
    until = time.monotonic() + LIMIT_S
    while (with_text(mark) or list(folder.iterdir())) and time.monotonic() < until:
        time.sleep(0.1)
    left = [f"process {pid}" for pid in with_text(mark)] + [file.name for file in folder.iterdir()]
    problems = [f"left: {', '.join(left)}"] if left else []
    problems += [line for text in said for line in text.splitlines() if "wrong sum" in line or "did not end" in line]
    if end == "by itself" and not all("ended" in text for text in said):
        problems.append("a rank did not train to its end:\n" + "\n".join(said))
    return "; ".join(problems)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    source, ends, problems = random.Random(given.seed), Counter[str](), 0
    for number in range(given.launches):
        end = ENDS[number % len(ENDS)]
        folder = Path(tempfile.mkdtemp())
        try:
            problem = launch(end, source, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        ends[end] += 1
        problems += bool(problem)
        if problem:
            print(f"launch {number}, {end}: {problem}", flush=True)
    print(
        f"{given.launches} launches ({', '.join(f'{n} {end}' for end, n in ends.items())}): {problems} left something"
    )
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())

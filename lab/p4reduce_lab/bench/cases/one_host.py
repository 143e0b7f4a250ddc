"""all_reduce of torch.distributed in a launch of 4 ranks on one host without a switch, beside gloo."""

from __future__ import annotations

import json
import sys
from statistics import median

from p4reduce_lab.addresses import LOOPBACK, reserved_port
from p4reduce_lab.bench import links
from p4reduce_lab.bench.case import TRAINING_PACKAGES, Case, Run, Series, Threshold, on_two_cores

RANKS = 4
THRESHOLDS = {
    size: Threshold(f"1 host of {RANKS} ranks, no switch, {size >> 10} KB: gloo / backend p4reduce", least)
    for size, least in ((4 << 10, 1.5), (64 << 10, 1.5), (1 << 20, 1.5), (4 << 20, 1.8), (26 << 20, 2.2))
}
"""The thresholds by bytes of a tensor."""
_LIMIT_S = 300.0
_SCRIPT = """import json, sys, time, torch, torch.distributed as dist
dist.init_process_group("p4reduce")
groups = {"gloo": dist.new_group(backend="gloo"), "p4reduce": dist.group.WORLD}
for size, turns in json.loads(sys.argv[1]):
    ones, copied, calls = torch.ones(size // 4), torch.empty(size // 4), max(4, min(60, (20 << 20) // size))
    found = {name: [] for name in (*groups, "memcpy")}
    for turn in range(1 + turns):  # the first one warms up
        for name in found:
            began = time.perf_counter()
            for _ in range(calls):
                if name == "memcpy":
                    copied.copy_(ones)
                else:
                    dist.all_reduce(ones, group=groups[name])
            found[name].append((time.perf_counter() - began) / calls)
            ones.fill_(1.0)
    if dist.get_rank() == 0:
        print("found", size, json.dumps({name: seconds[1:] for name, seconds in found.items()}), flush=True)
dist.destroy_process_group()"""


def measure(run: Run) -> None:
    """Measure both and a copy in memory in turn, on two cores, for each size."""
    with on_two_cores(), reserved_port() as port:
        launch = {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(port), "WORLD_SIZE": str(RANKS)}
        launch |= {"OMP_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": str(RANKS)}
        sizes = json.dumps([(size, run.repetitions) for size in THRESHOLDS])
        command = [sys.executable, "-P", "-c", _SCRIPT, sizes]
        ranks = [
            run.children.start(f"rank {rank}", command, launch | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(RANKS)
        ]
        for size in THRESHOLDS:
            line = ranks[0].wait_line(rf"found {size} (.*)\n", _LIMIT_S)
            _add(run, size, json.loads(line[1]))
        for rank in ranks:
            rank.wait(_LIMIT_S)


def _add(run: Run, size: int, found: dict[str, list[float]]) -> None:
    what = f"all_reduce of {size >> 10} KB in a row, {RANKS} ranks of one host, no switch"
    for peer, seconds in found.items():
        sized = 0 if peer == "memcpy" else size
        milliseconds = [1000 * one for one in seconds]
        run.add(Series(what, peer, str(links.LOOPBACK), "ms", milliseconds, size=sized, ranks=RANKS))
    copies = median(found["p4reduce"]) / median(found["memcpy"])
    run.say(f"p4reduce takes the time of {copies:.0f} copies in memory")
    run.ratio(THRESHOLDS[size].name, found["gloo"], found["p4reduce"])


CASE = Case(
    "one-host",
    "a launch on one host without a switch: all_reduce of the backends gloo and p4reduce in turn, on two cores",
    measure,
    needs=(TRAINING_PACKAGES,),
    thresholds=tuple(THRESHOLDS.values()),
)

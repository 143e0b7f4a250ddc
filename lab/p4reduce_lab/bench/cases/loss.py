"""What loss costs: 80 KB on 4 ranks over loopback, each loss beside no loss."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median

import numpy as np

from p4reduce.communicator import Communicator
from p4reduce.testing.udp_switch import connect, drop_rate_message
from p4reduce_lab.bench.case import Case, Run, Series
from p4reduce_lab.bench.links import LOOPBACK

RANKS, ELEMENTS, COLLECTIVES = 4, 20_000, 4
LOSSES = (0.0, 0.01, 0.05, 0.1)
_LIMIT_S = 60.0
_READY_S = 30.0


def measure(run: Run) -> None:
    """Make the reference switch (p4reduce.testing) drop frames, in each direction, at one rate after the other."""
    command = [sys.executable, "-P", "-m", "p4reduce.testing.udp_switch", "--world-size", str(RANKS)]
    port = int(run.children.start("reference switch", command).wait_line(r"(\d+)\n", _READY_S)[1])
    with ThreadPoolExecutor(RANKS) as pool:
        comms = [connect(port, rank, RANKS, timeout_s=_LIMIT_S) for rank in range(RANKS)]
        time.sleep(1.0)  # until every rank's HELLO has arrived
        counted: dict[float, tuple[list[int], list[int]]] = {loss: ([], []) for loss in LOSSES}

        def on_all(work: Callable[[Communicator], None]) -> None:
            list(pool.map(work, comms))

        def seconds(loss: float) -> float:
            comms[0].over_switch.transport.send([drop_rate_message(loss)])
            on_all(lambda comm: sums(comm, 1))
            before, began = [comm.stats.copy() for comm in comms], time.monotonic()
            on_all(lambda comm: sums(comm, COLLECTIVES))
            spent_s = time.monotonic() - began
            spent = [comm.stats - stats for comm, stats in zip(comms, before, strict=True)]
            counted[loss][0].append(sum(one.frames_up for one in spent))
            counted[loss][1].append(sum(one.retransmissions for one in spent))
            comms[0].over_switch.transport.send([drop_rate_message(0.0)])
            on_all(Communicator.barrier)
            return spent_s

        peers = {f"{loss:.0%}": partial(seconds, loss) for loss in LOSSES}
        for call in peers.values():  # for the caches, and for what is learned of the path
            call()
        found = run.in_turn(peers)
        on_all(Communicator.close)
    usual = median(next(iter(found.values())))
    for (loss, values), (sent, again) in zip(found.items(), counted.values(), strict=True):
        counts = {"times as long as without loss": median(values) / usual}
        counts |= {"frames": float(sum(sent[1:])), "repeated": float(sum(again[1:]))}
        what = f"80 KB of int32, {RANKS} ranks, {loss} lost each way"
        run.add(Series(what, "p4reduce", str(LOOPBACK), "ms", [1000 * s for s in values], {}, counts))


def sums(comm: Communicator, count: int) -> None:
    """Sum so many times."""
    tensor = np.full(ELEMENTS, comm.rank + 1, np.int32)
    for _ in range(count):
        assert (comm.all_reduce(tensor) == 10).all()


CASE = Case("loss", "what 1, 5 and 10 % of frames lost each way cost, over a reference switch", measure)

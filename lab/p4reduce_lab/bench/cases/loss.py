"""What loss costs: 80 KB on 4 ranks over loopback, each loss beside no loss."""

from __future__ import annotations

import json
import sys
from typing import Any

from p4reduce_lab.bench.case import Case, Run, Series
from p4reduce_lab.bench.links import LOOPBACK
from p4reduce_lab.bench.numbers import median

RANKS = 4
_LIMIT_S = 150.0
_READY_S = 30.0
_MODULE = (sys.executable, "-P", "-m")


def measure(run: Run) -> None:
    """Make the reference switch (p4reduce.testing) drop frames, in each direction, at one rate after the other."""
    command = [*_MODULE, "p4reduce.testing.udp_switch", "--world-size", str(RANKS)]
    switch = run.children.start("reference switch", command)
    switch.wait_ready(lambda: switch.log.read_bytes().endswith(b"\n"), _READY_S)
    port = switch.log.read_text(encoding="ascii").split()[0]
    arguments = [port, "{rank}", str(run.repetitions)]
    ranks = []
    for rank in range(RANKS):
        command = [*_MODULE, "p4reduce_lab.bench.lossy_rank", *arguments]
        ranks.append(run.children.start(f"rank {rank}", [word.format(rank=rank) for word in command]))
    found: list[dict[str, Any]] = []
    for process in ranks:
        process.wait(_LIMIT_S)
        if process.status != 0:
            raise process.failure(f"failed with status {process.status}")
        found.append(json.loads(process.log.read_text(encoding="utf-8").splitlines()[-1]))
    usual = median(found[0]["0.0"]["seconds"])
    for loss in found[0]:
        seconds = found[0][loss]["seconds"]
        sent, again = (sum(of_rank[loss][key] for of_rank in found) for key in ("sent", "again"))
        counted = {"times as long as without loss": median(seconds) / usual, "frames": sent, "repeated": again}
        what = f"80 KB of int32, {RANKS} ranks, {float(loss):.0%} lost each way"
        run.add(Series(what, "p4reduce", str(LOOPBACK), "ms", [1000 * s for s in seconds], {}, counted))


CASE = Case("loss", "what 1, 5 and 10 % of frames lost each way cost, over a reference switch", measure)

"""What loss costs: 80 KB on 4 ranks over real sockets, each loss beside no loss in one run.

    python -m p4reduce_lab.bench.loss

The reference switch (p4reduce.testing) loses the frames, on each way. Prints times as ratios to those without loss.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Any

RANKS = 4
REPETITIONS = 6
LIMIT_S = 120.0


def measure() -> list[dict[str, Any]]:
    """Return what each rank measured, by loss: seconds of each all-reduce, frames sent, and sent again."""
    module = (sys.executable, "-m")
    switch = subprocess.Popen(
        [*module, "p4reduce.testing.udp_switch", "--world-size", str(RANKS)], stdout=subprocess.PIPE, text=True
    )
    ranks: list[subprocess.Popen[str]] = []
    try:
        assert switch.stdout is not None
        port = switch.stdout.readline().strip()
        for rank in range(RANKS):
            command = [*module, "p4reduce_lab.bench.lossy_rank", port, str(rank), str(REPETITIONS)]
            ranks.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return [json.loads(rank.communicate(timeout=LIMIT_S)[0]) for rank in ranks]
    finally:
        for process in [*ranks, switch]:
            process.kill()
            process.communicate()


def main() -> None:
    """Measure once and print a line a loss."""
    found = measure()
    usual = {loss: statistics.median(found[0][loss]["seconds"]) for loss in found[0]}
    for loss, seconds in usual.items():
        sent, again = (sum(rank[loss][key] for rank in found) for key in ("sent", "again"))
        print(
            f"loss {float(loss):.0%} each way: {1000 * seconds:.1f} ms, {seconds / usual['0.0']:.2f} times as long as "
            f"without; {again} of {sent} frames sent again"
        )


if __name__ == "__main__":
    main()

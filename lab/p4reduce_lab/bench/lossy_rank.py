"""One of 4 ranks that sum 80 KB over a UDP switch whose loss changes; cases/loss.py starts it: PORT RANK CYCLES.

Prints, for each loss, the seconds that a few all-reduces took, each time, and the frames sent and sent again.
"""

import json
import sys
import time
from typing import Any

import numpy as np

from p4reduce.testing.udp_switch import connect, drop_rate_message

WORLD_SIZE, ELEMENTS, COLLECTIVES = 4, 20_000, 4
LOSSES = (0.0, 0.01, 0.05, 0.1)

port, rank, cycles = (int(argument) for argument in sys.argv[1:])
comm = connect(port, rank, WORLD_SIZE, timeout_s=60.0)
time.sleep(1.0)  # until every rank's HELLO has arrived
tensor = np.full(ELEMENTS, rank + 1, np.int32)
found: dict[str, dict[str, Any]] = {str(loss): {"seconds": [], "sent": 0, "again": 0} for loss in LOSSES}
for cycle in range(cycles + 1):
    for loss in LOSSES:
        if rank == 0:
            comm.transport.send([drop_rate_message(loss)])
        comm.all_reduce(tensor)
        before, begun = comm.stats.copy(), time.monotonic()
        for _ in range(COLLECTIVES):
            assert (comm.all_reduce(tensor) == 10).all()
        seconds, spent = time.monotonic() - begun, comm.stats - before
        if cycle:  # the first is for the caches, and for what is learned of the path
            found[str(loss)]["seconds"].append(seconds)
            found[str(loss)]["sent"] += spent.frames_up
            found[str(loss)]["again"] += spent.retransmissions
        if rank == 0:
            comm.transport.send([drop_rate_message(0.0)])
        comm.barrier()
comm.close()
print(json.dumps(found))

"""One worker's part of the benchmark: dense all-reduces of int32, and the frames it sent a second.

Runs on every host of a testbed; prints one line of JSON. Every sum is checked.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

import p4reduce


def main() -> None:
    """Join the job of the environment, and sum until rank 0 has had enough."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0, help="how long to go on")
    parser.add_argument("--words", type=int, default=8 * 32 * 16 * 8, help="32-bit words a tensor")
    parser.add_argument("--window", type=int, default=16, help="slots used at once")
    args = parser.parse_args()
    with p4reduce.join(window=args.window, collective_timeout_s=60) as comm:
        tensor = np.random.default_rng(comm.rank).integers(1, 2**20, args.words, dtype=np.int32)
        expected = comm.all_reduce(tensor)  # the first one also warms up
        all_tensors = comm.all_gather(tensor)
        assert np.array_equal(expected, all_tensors.sum(axis=0, dtype=np.int32)), "the switch's sum is wrong"
        comm.barrier()
        frames, repeated = comm.stats.frames_up, comm.stats.retransmissions
        started = time.perf_counter()
        while True:
            assert np.array_equal(comm.all_reduce(tensor, dense=True), expected), "the switch's sum is wrong"
            # One rank's clock decides for all, so that they stop together.
            go_on = np.array([time.perf_counter() - started < args.seconds if comm.rank == 0 else 0], np.int32)
            if not comm.broadcast(go_on, root=0)[0]:
                break
        seconds = time.perf_counter() - started
        sent = comm.stats.frames_up - frames
        repeated = comm.stats.retransmissions - repeated
        print(json.dumps({"rank": comm.rank, "frames_up": sent, "repeated": repeated, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()

"""Runs on a testbed's host: sums whose results each rank can calculate, compared word by word.

torchrun --nproc-per-node 4 check_sums.py --sums 40
"""

from __future__ import annotations

import argparse
import json

import numpy as np
from numpy.typing import NDArray

import p4reduce

SIZES = (1, 31, 32, 257, 4096, 9802)
SPARSITY = (0.0, 0.5, 0.97)
"""The share of blocks that are all zero."""
_BLOCK = 32
_TIMEOUT_S = 30.0


def values(number: int, rank: int) -> NDArray[np.int32]:
    """Return what a rank contributes to sum `number`: int32 of any size, in blocks of which some are zero."""
    source = np.random.default_rng([number, rank])
    size, sparsity = SIZES[number % len(SIZES)], SPARSITY[number % len(SPARSITY)]
    data = source.integers(-(2**25), 2**25, size, dtype=np.int32)
    blocks = source.random(-(-size // _BLOCK)) >= sparsity
    data[~np.repeat(blocks, _BLOCK)[:size]] = 0
    return data


def main() -> None:
    """Sum, compare, and print what was found as one line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sums", type=int, default=60)
    args = parser.parse_args()
    words = mismatched_sums = mismatched_words = 0
    with p4reduce.join(timeout_s=_TIMEOUT_S, collective_timeout_s=_TIMEOUT_S) as comm:
        for number in range(args.sums):
            given = [values(number, rank) for rank in range(comm.world_size)]
            total = comm.all_reduce(given[comm.rank])
            wrong = int(np.count_nonzero(total != np.sum(given, axis=0, dtype=np.int32)))
            words += total.size
            mismatched_words += wrong
            mismatched_sums += wrong > 0
        retransmissions = comm.stats.retransmissions
    found = {
        "sums": args.sums,
        "words": words,
        "mismatched_sums": mismatched_sums,
        "mismatched_words": mismatched_words,
        "retransmissions": retransmissions,
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

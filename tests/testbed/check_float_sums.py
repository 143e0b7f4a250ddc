"""Runs on a testbed's host: sums of floats in 32, 16 and 8 bits, compared with their definition in numpy.

python -P check_float_sums.py, with the tests' folders on PYTHONPATH. Prints a line of JSON: of each sum its format, how
many numbers differ from the definition, and the digest of its bits.
"""

from __future__ import annotations

import hashlib
import json

import torch

import p4reduce
from rigs.float_sums import by_numpy
from rigs.limits import LIMIT_S

SIZES = (1, 63, 500, 4097)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
BITS = (32, 16, 8)


def given(size: int, dtype: torch.dtype, rank: int) -> torch.Tensor:
    """Return what a rank contributes: numbers of many sizes, and a run of zeros in which blocks are missing."""
    draw = torch.Generator().manual_seed(size * 100 + rank)
    numbers = torch.randn(size, generator=draw) * 2.0 ** torch.randint(-12, 5, (size,), generator=draw)
    numbers[size // 3 : size // 2] = 0
    return numbers.to(dtype)


def main() -> None:
    """Sum, compare, print."""
    found = []
    with p4reduce.join(timeout_s=LIMIT_S, collective_timeout_s=LIMIT_S) as comm:
        words = comm.lease.block_words
        for bits in BITS:
            for dtype in DTYPES:
                for size in SIZES:
                    ranks = [given(size, dtype, rank) for rank in range(comm.world_size)]
                    total = comm.all_reduce(ranks[comm.rank], bits=bits)  # type: ignore[arg-type]
                    wanted = by_numpy(ranks, bits, words)
                    words_of = total.view(torch.int32 if dtype == torch.float32 else torch.int16).numpy()
                    digest = hashlib.sha256(words_of.tobytes()).hexdigest()
                    wrong = int((total != wanted).sum())
                    found.append({"bits": bits, "type": str(dtype), "size": size, "wrong": wrong, "digest": digest})
    print(json.dumps({"sums": found}), flush=True)


if __name__ == "__main__":
    main()

"""What it costs to make a gradient smaller: AdaComp beside torch.topk, a sort, and zlib; one process, one core."""

from __future__ import annotations

import zlib
from functools import partial

from p4reduce_lab.bench.case import Case, Run
from p4reduce_lab.bench.cases.adacomp import Compression, hand_in, least_seconds
from p4reduce_lab.bench.numbers import in_turn

SHAPE = (2048, 1024)
QUICK_SHAPE = (512, 512)
ZLIB_LEVELS = (1, 6)
"""The fastest, and zlib's own default."""


def measure(run: Run) -> None:
    """Measure all of them in turn on the same 2 M elements. Raises Missing without torch."""
    work = Compression(QUICK_SHAPE if run.quick else SHAPE)
    data = work.flat.numpy().tobytes()

    def deflate(level: int) -> float:
        return least_seconds(lambda: zlib.compress(data, level))

    peers = {"p4reduce": work.adacomp, "torch.topk": work.top_k, "torch.sort": work.sort, "a plain add": work.add}
    peers |= {f"zlib, level {level}": partial(deflate, level) for level in ZLIB_LEVELS}
    hand_in(run, work, in_turn(peers, run.repetitions))
    for level in ZLIB_LEVELS:
        smaller = len(data) / len(zlib.compress(data, level))
        run.note(f"zlib, level {level}, makes float32 {smaller:.2f} times smaller.")
    run.note("ours adds the residue, chooses, takes away and encodes; topk and sort have the magnitudes alone.")


CASE = Case("selection", "AdaComp compress and encode beside torch.topk, torch.sort and zlib", measure)

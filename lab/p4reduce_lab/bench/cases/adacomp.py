"""AdaComp's choice and encoding beside torch.topk of as many elements: one process, one core."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

from p4reduce_lab.bench.case import Bar, Case, Missing, Run, Series
from p4reduce_lab.bench.numbers import in_turn, median

SHAPE = (2048, 2048)
QUICK_SHAPE = (1024, 1024)
_WORLD_SIZE = 4
_TURNS = 3
_RESIDUE = 2.0
"""Standard deviation of the residue, in those of the gradient: so that about one in a hundred elements is chosen."""
_SPARSE = Bar("AdaComp, compress and encode 4 M elements on one core: torch.topk / ours", 5)


def measure(run: Run) -> None:
    """Compress the same gradient, onto the same residue, again and again. Raises Missing without torch."""
    try:
        import torch
    except ImportError as error:
        raise Missing(f"torch is not installed ({error})") from None
    from p4reduce.codecs.coordinates import entry_bytes
    from p4reduce.compressors import AdaComp
    from p4reduce.compressors.forms import Form
    from p4reduce.compressors.step import ParameterState, Step
    from p4reduce.group import Group

    torch.set_num_threads(1)
    numbers = torch.Generator().manual_seed(1)
    gradient = torch.randn(QUICK_SHAPE if run.quick else SHAPE, generator=numbers)
    residue = _RESIDUE * torch.randn(gradient.numel(), generator=numbers)
    compressor = AdaComp(form="gather")
    group = Group("bench", 0, _WORLD_SIZE, 32, 8, 256)
    step = Step("weight", gradient, ParameterState(steps=3, residue=residue, scale=1.0), Form.GATHER, group)

    def ours() -> Any:
        own = replace(step, state=replace(step.state, residue=residue.clone()))  # it may be changed in place
        began = time.thread_time()
        compressed = compressor.compress(own)
        return time.thread_time() - began, compressed

    compressed: Any = ours()[1]
    chosen = max(1, compressed.sent_bits // (8 * entry_bytes(compressor.length_of("weight", gradient.shape))))
    flat = gradient.reshape(-1)

    def top_k() -> float:
        began = time.thread_time()
        torch.topk(flat.abs(), chosen, sorted=False)
        return time.thread_time() - began

    def add() -> float:
        began = time.thread_time()
        torch.add(residue, flat)
        return time.thread_time() - began

    def least(work: Any) -> float:
        return min(float(work()) for _ in range(_TURNS))

    peers = {"torch.topk": partial(least, top_k), "p4reduce": partial(least, lambda: ours()[0])}
    peers["a plain add"] = partial(least, add)
    found = in_turn(peers, run.repetitions)
    what = f"{gradient.numel():,} elements, {chosen / gradient.numel():.2%} of them chosen, one core"
    for peer, seconds in found.items():
        counted = {"CPU ns an element": 1e9 * median(seconds) / gradient.numel()}
        run.add(Series(what, peer, "in one process", "ms", [1000 * second for second in seconds], {}, counted))
    run.bar(_SPARSE.name, found["torch.topk"], found["p4reduce"])
    run.note("torch.topk of the magnitudes, not sorted; ours adds the residue, chooses, takes away and encodes.")


CASE = Case("adacomp", "AdaComp compress and encode beside torch.topk of the same share", measure, bars=(_SPARSE,))

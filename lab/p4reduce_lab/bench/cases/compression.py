"""AdaComp's selection and encoding beside torch.topk, a sort and zlib: one process, one core."""

from __future__ import annotations

import math
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from p4reduce_lab.bench.case import Case, Run, Series, Threshold
from p4reduce_lab.bench.numbers import in_turn, least_cpu_seconds, median
from p4reduce_lab.errors import MissingToolError

if TYPE_CHECKING:
    from p4reduce.compressors.step import Step

ADACOMP_SHAPE, SELECTION_SHAPE = (2048, 2048), (2048, 1024)
QUICK_SHAPE = (1024, 1024)
ZLIB_LEVELS = (1, 6)
"""The fastest, and zlib's own default."""
_WORLD_SIZE = 4
_TURNS = 3
_RESIDUE = 2.0
"""Standard deviation of the residue, in those of the gradient: so that about one in a hundred elements is chosen."""
_SPARSE = Threshold("AdaComp, compress and encode 4 M elements on one core: torch.topk / ours", 5)


def measure_adacomp(run: Run) -> None:
    """Compress the same gradient, onto the same residue, again and again. Raises MissingToolError without torch."""
    shape = QUICK_SHAPE if run.quick else ADACOMP_SHAPE
    work = Compression(shape)
    peers = {"torch.topk": work.top_k, "p4reduce": work.adacomp, "a plain add": work.add}
    for form in ("gather", "sum"):
        peers[f"a rank's step, form {form}"] = WholeStep(shape, form).seconds
    found = in_turn(peers, run.repetitions)
    add_series(run, work, found)
    run.ratio(_SPARSE.name, found["torch.topk"], found["p4reduce"])
    run.note("torch.topk of the magnitudes, not sorted; ours adds the residue, chooses, takes away and encodes.")
    run.note(f"A rank's step: all that one of {_WORLD_SIZE} ranks does but send and receive, the mean of all included.")


def measure_selection(run: Run) -> None:
    """Measure other ways to select or shrink the same elements, in turn. Raises MissingToolError without torch."""
    work = Compression(QUICK_SHAPE if run.quick else SELECTION_SHAPE)
    data = work.flat.numpy().tobytes()

    def deflate(level: int) -> float:
        return _least_seconds(lambda _: zlib.compress(data, level))

    peers = {"p4reduce": work.adacomp, "torch.topk": work.top_k, "torch.sort": work.sort, "a plain add": work.add}
    peers |= {f"zlib, level {level}": partial(deflate, level) for level in ZLIB_LEVELS}
    add_series(run, work, in_turn(peers, run.repetitions))
    for level in ZLIB_LEVELS:
        smaller = len(data) / len(zlib.compress(data, level))
        run.note(f"zlib, level {level}, makes float32 {smaller:.2f} times smaller.")
    run.note("ours adds the residue, chooses, takes away and encodes; topk and sort have the magnitudes alone.")


def add_series(run: Run, work: Compression, found: dict[str, list[float]]) -> None:
    """Add a series for each peer, with nanoseconds an element."""
    elements = work.flat.numel()
    what = f"{elements:,} elements, {work.chosen / elements:.2%} of them chosen, one core"
    for peer, seconds in found.items():
        counted = {"CPU ns an element": 1e9 * median(seconds) / elements}
        run.add(Series(what, peer, "in one process", "ms", [1000 * second for second in seconds], {}, counted))


class Compression:
    """A gradient of normally distributed numbers; each method returns its CPU seconds, the least of a few turns."""

    def __init__(self, shape: tuple[int, int]) -> None:
        """Raises MissingToolError without torch."""
        try:
            import torch
        except ImportError as error:
            raise MissingToolError(f"torch is not installed ({error})") from None
        from p4reduce.codecs.coordinates import entry_bytes
        from p4reduce.compressors import AdaComp
        from p4reduce.compressors.forms import Form
        from p4reduce.compressors.step import ParameterState, Step
        from p4reduce.group import Group

        torch.set_num_threads(1)
        self._torch = torch
        numbers = torch.Generator().manual_seed(1)
        gradient = torch.randn(shape, generator=numbers)
        self.flat = gradient.reshape(-1)
        self._residue = _RESIDUE * torch.randn(gradient.numel(), generator=numbers)
        self._compressor = AdaComp(form="gather")
        group = Group("bench", 0, _WORLD_SIZE, 32, 8, 256)
        state = ParameterState(steps=3, residue=self._residue, scale=1.0)
        self._step = Step("weight", gradient, state, Form.GATHER, group)
        entry_bits = 8 * entry_bytes(self._compressor.length_of("weight", gradient.shape))
        self.chosen = max(1, self._compressor.compress(self._own_step()).sent_bits // entry_bits)

    def adacomp(self) -> float:
        """Add the residue, choose, take away and encode."""
        return least_cpu_seconds(self._compressor.compress, self._own_step, _TURNS)

    def top_k(self) -> float:
        """Find as many of the largest magnitudes as AdaComp chooses, unsorted."""
        return _least_seconds(lambda _: self._torch.topk(self.flat.abs(), self.chosen, sorted=False))

    def sort(self) -> float:
        """Sort all magnitudes, with their places."""
        return _least_seconds(lambda _: self._torch.sort(self.flat.abs(), descending=True))

    def add(self) -> float:
        """Add the residue, and nothing else."""
        return _least_seconds(lambda _: self._torch.add(self._residue, self.flat))

    def _own_step(self) -> Step:
        """The step with a residue of its own: it may be changed in place."""
        return replace(self._step, state=replace(self._step.state, residue=self._residue.clone()))


class WholeStep:
    """A step of AdaComp with all ranks in one process; gradients and residues as in `Compression`, each rank's own."""

    def __init__(self, shape: tuple[int, int], form: str) -> None:
        import torch

        from p4reduce.compressors import AdaComp
        from p4reduce.testing.in_process import groups

        self._groups = groups(_WORLD_SIZE)
        self._compressors = [AdaComp(form=form) for _ in self._groups]
        numbers = [torch.Generator().manual_seed(rank) for rank in range(_WORLD_SIZE)]
        self._gradients = [{"weight": torch.randn(shape, generator=its)} for its in numbers]
        self._residues = [_RESIDUE * torch.randn(math.prod(shape), generator=its) for its in numbers]

    def seconds(self) -> float:
        """Make the step a few times; return rank 0's least CPU seconds."""
        return min(self._step() for _ in range(_TURNS))

    def _step(self) -> float:
        from p4reduce.compressors.step import ParameterState
        from p4reduce.testing.in_process import exchange_all

        for compressor, residue in zip(self._compressors, self._residues, strict=True):
            compressor.commit_step({"weight": ParameterState(steps=3, residue=residue.clone(), scale=1.0)})
        clock = _Clock()
        exchange_all(self._compressors, self._gradients, self._groups, in_rank_0=clock)
        return clock.seconds


class _Clock:
    """CPU seconds of this thread within its `with` statements."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self.seconds -= time.thread_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.thread_time()


def _least_seconds(work: Callable[[None], object]) -> float:
    return least_cpu_seconds(work, lambda: None, _TURNS)


ADACOMP_CASE = Case(
    "adacomp", "AdaComp compress and encode beside torch.topk of the same share", measure_adacomp, thresholds=(_SPARSE,)
)
SELECTION_CASE = Case(
    "selection", "AdaComp compress and encode beside torch.topk, torch.sort and zlib", measure_selection
)

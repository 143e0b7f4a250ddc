"""Sums in 16 and 8 bits a number beside gloo's; and what the kernels of these formats, and of AdaComp, cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle

import numpy as np

from p4reduce.codecs import Floats
from p4reduce.protocol.state import UNTOUCHED
from p4reduce_contracts.wire.geometry import DEFAULT
from p4reduce_contracts.wire.lanes import lanes_per_word
from p4reduce_lab.bench.case import Run, Series, Threshold
from p4reduce_lab.bench.grid import case_of, rows_of
from p4reduce_lab.bench.rows import FLOAT_BYTES, MEGABYTE, measure_rows
from p4reduce_lab.bench.tensors import Kind, tensor

WORKERS = 4
_TURNS = 5
MOMENTUM = Threshold("CPU of a step of AdaComp, 8 M parameters: without momentum / with", 1 / 1.3)
KERNELS = Threshold("encode and decode in 16 bits on one core: copy / both", 1 / 3)


def measure(run: Run) -> None:
    """Measure the kernels in this process, then sums and a training step on each link."""
    kernels(run)
    momentum(run)
    measure_rows(run, rows_of("wire"))


def kernels(run: Run) -> None:
    """Measure a copy of 25 MB of float32, and its encoding and decoding in each format, on one core.

    Both write to memory that was used before: the first use of a page takes longer than all else. Encode and decode go
    through one block of words, as frames are used again and again and the sum is written where the caller wants it.
    """
    values = tensor(Kind(25 * MEGABYTE // FLOAT_BYTES), 0, WORKERS)
    copied = np.empty_like(values)
    peers: dict[str, Callable[[], float]] = {"copy": partial(_milliseconds, partial(np.copyto, copied, values))}
    for wire, bits in (("float32", 32), ("16", 16), ("8", 8)):
        segment = Floats(values, bits)
        bind = partial(segment.bind, WORKERS, DEFAULT.block_words, True)
        source = bind()
        exponents = source.exponents
        assert not (exponents == UNTOUCHED).any()
        decoded = np.zeros(source.n_blocks * DEFAULT.block_words * lanes_per_word(segment.detail or 32), np.uint32)
        peers[f"{wire}, find exponents"] = partial(_milliseconds, bind)
        peers[f"{wire}, encode and decode"] = partial(_milliseconds, partial(source.parts[0].sent, exponents, decoded))
    found = run.in_turn(peers)
    for peer, times in found.items():
        run.add(Series("25 MB of float32, one core", peer, "in one process", "CPU ms", times))
    run.ratio(KERNELS.name, found["copy"], found["16, encode and decode"])


def momentum(run: Run) -> None:
    """Measure a step of AdaComp of 8 million parameters on one rank and one core, without momentum and with."""
    import torch  # only here: other cases do without

    from p4reduce.compressors import AdaComp, Form, Policy
    from p4reduce.testing.in_process import exchange_all, groups

    def next_step(compressor: AdaComp, gradients: Iterator[dict[str, torch.Tensor]]) -> None:
        exchange_all([compressor], [next(gradients)], groups(1))

    draw = torch.Generator().manual_seed(0)
    drawn = [{f"{layer}.weight": torch.randn(1024, 1024, generator=draw) for layer in range(8)} for _ in range(_TURNS)]
    peers: dict[str, Callable[[], float]] = {}
    for name, decay in (("AdaComp", 0.0), ("AdaComp with momentum", 0.9)):
        step = partial(next_step, AdaComp(Policy(linear=50), Form.GATHER, momentum=decay), cycle(drawn))
        step()
        peers[name] = partial(_milliseconds, step)
    found = run.in_turn(peers)
    for peer, times in found.items():
        run.add(Series("a step of 8 M parameters, one core", peer, "in one process", "CPU ms", times))
    run.ratio(MOMENTUM.name, found["AdaComp"], found["AdaComp with momentum"])


def _milliseconds(work: Callable[[], object]) -> float:
    """Return the CPU milliseconds that this thread takes for a call, the least of some turns."""
    times = []
    for _ in range(_TURNS):
        began = time.thread_time()
        work()
        times.append(time.thread_time() - began)
    return 1e3 * min(times)


CASE = case_of("wire", measure, (KERNELS, MOMENTUM))

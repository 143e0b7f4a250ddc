"""Several ranks of a compressor in one process: over a switch, and alone."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from p4reduce.codecs.coordinates import GatheredCoordinates, RanksCoordinates
from p4reduce.compressors import (
    AdaComp,
    Compressed,
    Compressor,
    Decompressed,
    Form,
    NoCompression,
    OmniReduce,
    Policy,
    Quantize,
    ScaleCom,
    Step,
    Stream,
)
from p4reduce.compressors.all_reduce import BucketReport, all_reduce_compressed
from p4reduce.compressors.exchange import Outcome
from p4reduce.testing.local_group import LocalGroup
from p4reduce_contracts.jobs.lease import Lease

Shapes = Mapping[str, tuple[int, ...]]
Source = Callable[[int, int], dict[str, torch.Tensor]]
"""The gradients of a (rank, step)."""

SHAPES = {"conv.weight": (6, 3, 3, 3), "conv.bias": (6,), "fc.weight": (10, 120), "fc.bias": (10,)}

ODD = {
    "conv": (8, 3, 5, 5),
    "transposed": (60, 100),
    "bias": (60,),
    "empty": (0, 5),
    "zeros": (30, 20),
    "small": (2, 3),
    "one": (1, 1, 1),
}
"""Shapes of every kind; see `odd`."""

MAKERS: dict[str, Callable[[], Compressor]] = {
    "none": NoCompression,
    "adacomp": AdaComp,
    "adacomp, sum": lambda: AdaComp(form="sum"),
    "adacomp, gather": lambda: AdaComp(form="gather"),
    "adacomp, shared": lambda: AdaComp(form="shared"),
    "adacomp, warm-up": lambda: AdaComp(warmup_steps=2),
    "adacomp, momentum": lambda: AdaComp(momentum=0.9),
    "adacomp, shared in 8 bits": lambda: AdaComp(form="shared", value_bits=8),
    "scalecom": lambda: ScaleCom(Policy(20, 20, 20, 20), warmup_steps=1),
    "scalecom, 32 bits": lambda: ScaleCom(b=1.0, value_bits=32),
    "quantize": lambda: Quantize(warmup_steps=1),
    "quantize, 16 bits": lambda: Quantize(16),
    "omnireduce": lambda: OmniReduce(ratio=0.1),
    "omnireduce, threshold": lambda: OmniReduce("threshold", threshold=16.0),
    "omnireduce, 8 bits": lambda: OmniReduce("random-k", value_bits=8),
    "omnireduce, ratio": lambda: OmniReduce("top-k-ratio", Policy(50, 33, 33, 33), ratio=0.2),
}
"""Every compressor, and every form of AdaComp."""


def make(name: str) -> Compressor:
    """One of MAKERS, bound to a module of the shapes ODD."""
    module = nn.Module()
    for key, shape in ODD.items():
        module.register_parameter(key, nn.Parameter(gaussian(shape, 4)))
    compressor = MAKERS[name]()
    compressor.bind(module)
    return compressor


def odd(rank: int, step: int) -> dict[str, torch.Tensor]:
    """Normal gradients of the shapes ODD; `transposed` and `conv` are not contiguous, `zeros` is zero but on one rank
    and step, and `empty` and `one` are what they say."""
    found = gradients_of(rank, step, ODD)
    found["transposed"] = gaussian((100, 60), 1000 * rank + step).t()
    found["conv"] = found["conv"].to(memory_format=torch.channels_last)
    if (rank, step) != (0, 2):
        found["zeros"].zero_()
    return found


def group(rank: int = 0, world_size: int = 1, **options: Any) -> Lease:
    return Lease(1, "test", 1, rank, world_size, 64, 8, 32, **options)


def gaussian(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def gradients_of(rank: int, step: int, shapes: Shapes = SHAPES) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def over_switch(
    compressors: Sequence[Compressor], source: Source, steps: int | range, **options: Any
) -> Iterator[list[tuple[Outcome, BucketReport]]]:
    """What the ranks got, step by step, from communicators over a switch.

    Nothing is lost on the way, and a slow clock keeps a busy machine from sending again, so the bytes are always alike.
    """
    options.setdefault("clock", lambda: time.monotonic() / 1000)
    with LocalGroup(len(compressors), **options) as group:
        for step in range(steps) if isinstance(steps, int) else steps:
            given = [source(rank, step) for rank in range(len(compressors))]
            yield group.run(
                lambda comm, given=given: all_reduce_compressed(comm, compressors[comm.rank], given[comm.rank])
            )


def begun(compressor: Compressor, key: str, gradient: torch.Tensor, form: Form) -> Step:
    """A step of the only rank there is, from where the compressor is."""
    length = compressor.policy.length(key, gradient.shape) or 0
    return Step(key, gradient, compressor.state_of(key), form, group(), length)


def compress_alone(compressor: Compressor, key: str, gradient: torch.Tensor, form: Form) -> Compressed:
    """Return what one rank would send; then what it kept is its residue."""
    step = begun(compressor, key, gradient, form)
    (compressed,) = compressor.compress([step])
    left = Decompressed(torch.zeros(gradient.numel()), compressed.kept, compressed.sent_bits)
    compressor.commit_step({key: step.state.after(left)})
    return compressed


def coordinates_alone(adacomp: AdaComp, key: str, gradient: torch.Tensor) -> RanksCoordinates:
    """Return what one rank would send in the form gather; the residue is then what it keeps."""
    message = compress_alone(adacomp, key, gradient, Form.GATHER).message
    assert isinstance(message, Stream)
    return GatheredCoordinates([message.part], [message.data], 0).finish(message.data[None])[0]


def residue_of(compressor: Any, key: str) -> torch.Tensor:
    residue = compressor.residue(key)
    assert isinstance(residue, torch.Tensor)
    return residue


def choose(
    residue: NDArray[Any] | None, gradient: NDArray[Any], length: int, largest_only: bool = False
) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[Any]]:
    """(G, whether an element is chosen, the largest |G| of each bin) by the definition, in the type of the numbers.

    With `largest_only` that of ScaleCom, else AdaComp's.
    """
    total = gradient.copy() if residue is None else residue + gradient
    chosen, largest = np.zeros(len(total), bool), []
    for at in range(0, len(total), length):
        own, most = total[at : at + length], np.abs(total[at : at + length]).max()
        largest.append(most)
        if largest_only:
            chosen[at + np.abs(own).argmax()] = most > 0
        else:
            chosen[at : at + length] = (np.abs(own + gradient[at : at + length]) >= most) & (most > 0)
    return total, chosen & gradient.any(), np.array(largest, total.dtype)


def through_a_file(compressor: Compressor) -> dict[str, Any]:
    """The state as torch.load gives it without running code."""
    file = io.BytesIO()
    torch.save(compressor.state_dict(), file)
    file.seek(0)
    state: dict[str, Any] = torch.load(file, weights_only=True)
    return state


def equal(one: object, other: object) -> bool:
    """Return whether two states are equal: nested dicts, lists, tensors and numbers."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(equal(one[k], other[k]) for k in one)
    return one == other

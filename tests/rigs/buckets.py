"""The part of torch's GradBucket that the hook uses, with one parameter a bucket."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from p4reduce.pytorch.ddp import DDPState


def model_of(shapes: Mapping[str, Sequence[int]]) -> torch.nn.Module:
    """Return a model with these parameters, of zeros."""
    return torch.nn.ParameterDict({name: torch.nn.Parameter(torch.zeros(*shape)) for name, shape in shapes.items()})


def reduce_all(
    state: DDPState, parameters: Iterable[torch.Tensor], gradients: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Hand in a backward pass with a bucket for each parameter; return the means."""
    pairs: list[Any] = [*zip(parameters, gradients, strict=True)]
    futures = [state.reduce(Bucket(n, *pair, last=n == len(pairs) - 1)) for n, pair in enumerate(pairs)]  # type: ignore[arg-type]
    return [future.wait() for future in futures]


class Bucket:
    """One parameter's gradient, as DistributedDataParallel would hand it to the hook."""

    def __init__(self, index: int, parameter: torch.Tensor, gradient: torch.Tensor, *, last: bool) -> None:
        self._index, self._parameter, self._gradient, self._last = index, parameter, gradient, last

    def index(self) -> int:
        return self._index

    def buffer(self) -> torch.Tensor:
        return self._gradient.reshape(-1)

    def gradients(self) -> list[torch.Tensor]:
        return [self._gradient]

    def parameters(self) -> list[torch.Tensor]:
        return [self._parameter]

    def is_last(self) -> bool:
        return self._last

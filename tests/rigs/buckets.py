"""The part of torch's GradBucket that the hook uses, with one parameter a bucket."""

from __future__ import annotations

import torch


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

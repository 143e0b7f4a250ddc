"""gloo with tensors that are not contiguous: it takes their memory as if they were."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import Work


def contiguously(
    collective: Callable[..., Any], written: Any, *arguments: Any, writes: bool = True, **more: Any
) -> Any:
    """Call gloo's collective, which writes to `written`, with contiguous copies of the tensors that are not.

    What is written is copied back once the work is done. Without `writes` it is only read. Raises ValueError for a
    tensor that is written and has several elements in one place.
    """
    copies: list[tuple[torch.Tensor, torch.Tensor]] = []
    written = _contiguous(written, copies if writes else [])
    check_written([tensor for tensor, _ in copies])
    work = collective(written, *(_contiguous(argument, []) for argument in arguments), **more)
    return _CopiedBack(work, copies) if copies else work


def check_written(tensors: Sequence[torch.Tensor]) -> None:
    """Raise ValueError for a tensor of which several elements are in one place."""
    for tensor in tensors:
        shared = any(not stride and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        if shared and tensor.numel():
            raise ValueError("elements of a tensor share memory (it was expanded): call .contiguous()")


def _contiguous(argument: Any, copies: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
    if isinstance(argument, list | tuple):
        return [_contiguous(each, copies) for each in argument]
    if not isinstance(argument, torch.Tensor) or argument.layout is not torch.strided:
        return argument
    if argument.is_contiguous() and not argument.is_conj() and not argument.is_neg():
        return argument
    copy = argument.detach().resolve_conj().resolve_neg().contiguous()
    copies.append((argument, copy))
    return copy


class WrappedWork(Work):
    """A work of gloo's, to which all calls go on; a subclass has `wait`."""

    def __init__(self, work: Any) -> None:
        super().__init__()
        self._work = work

    def get_future(self) -> Any:
        return self._work.get_future()

    def result(self) -> Any:
        return self._work.result()

    def is_completed(self) -> bool:
        return bool(self._work.is_completed())

    def is_success(self) -> bool:
        return bool(self._work.is_success())

    def exception(self) -> Any:
        return self._work.exception()

    def source_rank(self) -> int:
        return int(self._work._source_rank())

    _source_rank = source_rank

    def synchronize(self) -> None:
        self.wait()


class _CopiedBack(WrappedWork):
    """A work of gloo's; whoever waits for it, or finds it completed, finds the tensors written."""

    def __init__(self, work: Any, copies: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        super().__init__(work)
        self._copies, self._lock = copies, threading.Lock()
        self._written = [tensor for tensor, _ in copies]

    def _copy_back(self, *_: Any) -> list[torch.Tensor]:
        with self._lock:
            while self._copies:
                tensor, copy = self._copies.pop()
                tensor.detach().copy_(copy)
        return []

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        done = bool(self._work.wait(timeout))
        self._copy_back()
        return done

    def get_future(self) -> Any:
        def finish(future: Any) -> list[torch.Tensor]:
            future.value()  # or its error
            self._copy_back()
            return self._written

        return self._work.get_future().then(finish)

    def is_completed(self) -> bool:
        done = super().is_completed()
        if done and self.is_success():
            self._copy_back()
        return done

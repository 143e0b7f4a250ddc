"""gloo with tensors that are not contiguous: it takes their memory as if they were.

A thread of gloo drops a collective's tensors, and runs callbacks of its future, after it has woken whoever waits. It
takes the interpreter's lock for that, and where the interpreter has begun to end meanwhile, this aborts the process. So
gloo gets tensors of its own, whose end shows that its thread has dropped them: `release` waits for it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

import torch
from torch.distributed import Work

from p4reduce.timeouts import tries

_given: Final[set[weakref.ref[torch.Tensor]]] = set()
"""What gloo has of the tensors of collectives."""
_works: Final[weakref.WeakSet[WrappedWork]] = weakref.WeakSet()
"""The works that the program still has, which keep their tensors."""
os.register_at_fork(after_in_child=_given.clear)  # a child has none of these threads


def contiguously(
    call: Callable[..., Any], written: Any, *arguments: Any, writes: bool = True, on_thread: bool = True, **more: Any
) -> Any:
    """Make a call of gloo, which writes to `written`, with contiguous copies of the tensors that are not.

    What is written is copied back once the work is done. Without `writes` it is only read. `on_thread`: whether a
    thread of gloo makes it, as collectives. Raises ValueError for a tensor that is written and has several elements in
    one place.
    """
    copies: list[tuple[torch.Tensor, torch.Tensor]] = []
    written = _contiguous(written, copies if writes else [], on_thread)
    check_written([tensor for tensor, _ in copies])
    work = call(written, *(_contiguous(argument, [], on_thread) for argument in arguments), **more)
    return _CopiedBack(work, copies) if copies else work


def release(timeout_s: float) -> None:
    """Wait, before the interpreter ends, until gloo's threads have dropped what they were given, for so long at most.

    The works that have ended are of no use after it.
    """
    for _ in tries(timeout_s):
        for work in list(_works):
            work.release()
        if not _given:
            break


def check_written(tensors: Sequence[torch.Tensor]) -> None:
    """Raise ValueError for a tensor of which several elements are in one place."""
    for tensor in (each for each in tensors if each.layout is torch.strided):
        shared = any(not stride and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        if shared and tensor.numel():
            raise ValueError("elements of a tensor share memory (it was expanded): call .contiguous()")


def _contiguous(argument: Any, copies: list[tuple[torch.Tensor, torch.Tensor]], on_thread: bool) -> Any:
    if isinstance(argument, list | tuple):
        return [_contiguous(each, copies, on_thread) for each in argument]
    if not isinstance(argument, torch.Tensor):
        return argument
    if argument.layout is not torch.strided:  # gloo gives what it writes to new indices and values
        copies.append((argument, given := argument.detach()))
    else:
        given = argument.detach().resolve_conj().resolve_neg().contiguous()
        if not argument.is_contiguous() or argument.is_conj() or argument.is_neg():
            copies.append((argument, given))
    if on_thread:
        _given.add(weakref.ref(given, _given.discard))  # without code of Python, on gloo's thread
    return given


class WrappedWork(Work):
    """A work of gloo's, to which all calls go on; a subclass has `wait`."""

    def __init__(self, work: Any) -> None:
        super().__init__()
        self._work = work
        _works.add(self)

    def release(self) -> bool:
        """Drop gloo's work, if it has ended; return whether it has."""
        work = self._work
        if work is not None and (work.release() if isinstance(work, WrappedWork) else work.is_completed()):
            self._work = None
        return self._work is None

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
                with torch.no_grad():  # `detach` of a sparse tensor has indices and values of its own
                    tensor.copy_(copy)
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

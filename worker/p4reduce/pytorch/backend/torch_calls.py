"""How torch calls a process group's collectives: in compiled code, in profiles, with the arguments of its overloads."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch._C._profiler import _RecordFunctionFast

from p4reduce.pytorch.backend.contiguous import contiguously

Method = TypeVar("Method", bound=Callable[..., Any])


def uncompiled(method: Method) -> Method:
    """Mark what torch.compile does not look into."""
    disabled = vars(torch)["_disable_dynamo"](method)

    @functools.wraps(method)
    def call(*arguments: Any, **keywords: Any) -> Any:
        # the mark imports torch._dynamo when it is called: 2.7 s of processor time for who compiles nothing, and
        # torch.distributed.nn.functional, which keeps the group of that time alive in default arguments
        return (disabled if "torch._dynamo" in sys.modules else method)(*arguments, **keywords)

    marked: Any = call
    return marked  # type: ignore[no-any-return]


def recorded(method: Method) -> Method:
    """Mark it as uncompiled, and record it for torch.profiler as torch's own groups do."""
    name = f"c10d::{method.__name__}{'' if method.__name__ == 'barrier' else '_'}"

    @uncompiled
    def of_any_group(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if (other := self._other(arguments)) is not None:
            return getattr(other, method.__name__)(*arguments, **keywords)
        with _RecordFunctionFast(name, list(tensors_in(arguments))):
            return method(self, *arguments, **keywords)

    @functools.wraps(method)
    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        tensors = arguments[0] if arguments else None
        if "torch._dynamo" in sys.modules or self._named or arguments[2:] or type(tensors) is not list or keywords:
            return of_any_group(self, *arguments, **keywords)
        if type(arguments[-1]) is list:  # the first is not the only list of tensors
            return of_any_group(self, *arguments)
        with _RecordFunctionFast(name, tensors):  # as almost all: a frame and some calls less
            return method(self, *arguments)

    marked: Any = call
    return marked  # type: ignore[no-any-return]


def by_gloo(name: str) -> Any:
    """Return a method that calls the companion group's method of this name."""

    def forward(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if self._named and (other := self._other(arguments)) is not None:
            return getattr(other, name)(*arguments, **keywords)
        method = getattr(self._companion, name)
        if name in {"send", "recv", "recv_anysource"}:  # not of all ranks
            self._check_usable(name)
            return contiguously(method, *arguments, writes=name != "send", on_thread=False, **keywords)
        return self._call_gloo(functools.partial(method, **keywords), *arguments, name=name)

    return uncompiled(forward)


def tensors_in(arguments: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in a call's arguments, also those in lists."""
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            yield argument
        elif isinstance(argument, list | tuple):
            yield from tensors_in(argument)


def options_of(kind: Any, given: Any, timeout: timedelta | None, op: Any = None, root: int | None = None) -> Any:
    """Return the options of a call: the given ones, or new ones from what torch's other overloads take."""
    if isinstance(given, kind):
        return given
    made = kind()
    if given is not None:
        made.reduceOp = given
    if op is not None:
        made.reduceOp = op
    if root is not None:
        made.rootRank = root
    if timeout is not None:
        made.timeout = timeout
    return made


def as_list(tensors: Any) -> list[torch.Tensor]:
    """Return a call's tensors as a list: torch gives one of them alone, too."""
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)

"""Which collective each rank of a process group is in, for the errors of ranks that call different ones.

Where one of those goes over gloo and another over p4reduce, or both over gloo, the ranks wait for each other. So a
rank that has waited for long, or until its time limit, writes to the group's store what it is in. In the detailed
debugging of torch.distributed it does so before each collective, and compares what all have called.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch.distributed as dist
from torch.distributed import DebugLevel, get_debug_level  # type: ignore[attr-defined]  # stubs leave out two

from p4reduce.paths.waits import LOG_AFTER_S
from p4reduce.pytorch.backend.contiguous import WrappedWork
from p4reduce_contracts.ranks import name_ranks
from p4reduce_runtime.threads import DaemonThread

if TYPE_CHECKING:
    import torch

Lost = Callable[[], str]
"""A function that returns why what is waited for may not come; "" while it may."""

LOOK_S: Final = 0.1
"""Seconds between two looks of a rank that waits for gloo at whether the members of its group are there."""
OTHERS_S: Final = 5.0
"""Seconds that a rank whose time is over waits for what the others are in."""
STORE_S: Final = 2.0
"""Seconds that the store may take: its process may have ended, or been stopped."""
_PAUSE_S: Final = 0.02
_LEAST_S: Final = 0.001  # no time is none for gloo
_NAMES: Final = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "_allgather_base": "all_gather",
    "allgather": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "alltoall_base": "all_to_all",
    "alltoall": "all_to_all",
}
_UNEQUAL: Final = frozenset({"alltoall", "scatter"})
"""Collectives whose tensors differ between the ranks of a right program."""


class GroupCall:
    """One collective of this rank. Its text is equal on all ranks that call the same."""

    def __init__(self, number: int, name: str, tensors: Sequence[torch.Tensor], way: str) -> None:
        """`number`: the call's, from 1 on; `way`: the path that it takes."""
        self._number, self._name, self._way = number, name, way
        self._shape: Sequence[int] = (-1,) if name in _UNEQUAL or not tensors else tensors[0].shape
        if tensors[1:] and name not in _UNEQUAL:
            self._shape = (sum(tensor.numel() for tensor in tensors),)
        self._dtype = tensors[0].dtype if tensors else None
        self.failed = False
        """Whether it failed before its time limit, so that this rank may go on."""

    def __str__(self) -> str:
        elements, name = math.prod(self._shape), _NAMES.get(self._name, self._name)
        of = f" ({elements} {str(self._dtype).removeprefix('torch.')})" if elements >= 0 else ""
        return f"{name} number {self._number}{of} over {self._way}"


class Calls:
    """The collectives of one rank of a group, in the order of the calls."""

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._number = 0
        self.running: GroupCall | None = None
        """The call that the queue of the group runs."""
        self.written: GroupCall | None = None
        """The call that the store names for this rank."""
        self._compares = size > 1 and get_debug_level() == DebugLevel.DETAIL

    def begin(self, name: str, tensors: Sequence[torch.Tensor], way: str, timeout_s: float) -> GroupCall:
        """Return the next collective. In detailed debugging raise DistBackendError unless all ranks call it."""
        self._number = number = self._number + 1
        call = GroupCall(number, name, tensors, way)
        if self.written is not None and self.written.failed:
            self.waits(call)
        if self._compares:
            self._compare(number, call, timeout_s)
        return call

    def running_waits(self) -> None:
        """Write that the collective of the queue has waited for long."""
        self.waits(self.running)

    def waits(self, call: GroupCall | None) -> None:
        """Write that this rank is in `call`: it has waited for long, or an earlier one has failed."""
        if self.written is not call:
            self.written = call
            self._write(str(call))

    def ended(self, call: GroupCall) -> None:
        """Write that this rank is not in `call` any more, if it was written."""
        if self.written is call:
            self.written = None
            self._write("")

    def after(self, call: GroupCall, *, timed_out: bool) -> str:
        """Return what to append to the error of `call`: which collectives the ranks are in, if these differ.

        After the time limit that waits for the other ranks, whose limits are over too, and names those that are in none
        that is known.
        """
        self.written, call.failed = call, not timed_out
        self._write(str(call))
        found = self._read(lambda rank: f"in/{rank}", OTHERS_S if timed_out else 0.0)
        found[self._rank] = str(call)
        if len(set(found.values())) == 1 and not (timed_out and len(found) < self._size):
            return ""
        return f"; {self._said(found, missing=timed_out)}"

    def close(self) -> None:
        """Use the store no more."""
        self._store = None

    def _compare(self, number: int, call: GroupCall, timeout_s: float) -> None:
        def key(rank: int) -> str:
            return f"{number}/{rank}"

        store = self._store
        within(STORE_S, lambda: store.set(key(self._rank), str(call)))
        found = self._read(key, timeout_s)
        if len(found) < self._size:
            text = f"{call} timed out; its timeout was {timeout_s:g} s: {self._said(found, missing=True)}"
            raise dist.DistBackendError(text)
        if len(set(found.values())) > 1:
            raise dist.DistBackendError(f"the ranks called different collectives: {self._said(found)}")
        if number > 1:  # which all have read that call this one
            within(STORE_S, lambda: store.delete_key(f"{number - 1}/{self._rank}"))

    def _write(self, text: str) -> None:
        store = self._store
        if store is not None and self._size > 1:
            within(STORE_S, lambda: store.set(f"in/{self._rank}", text))

    def _read(self, key: Callable[[int], str], wait_s: float) -> dict[int, str]:
        """Return what the ranks have written under their keys, as far as it comes in `wait_s`, by rank."""
        found: dict[int, str] = {}
        store, end = self._store, time.monotonic() + wait_s

        def read() -> None:
            while True:
                for rank in range(self._size):
                    if rank not in found and store.check([key(rank)]) and (text := store.get(key(rank)).decode()):
                        found[rank] = text
                if len(found) == self._size or time.monotonic() >= end:
                    return
                time.sleep(_PAUSE_S)

        if store is not None:
            within(wait_s + STORE_S, read)
        return dict(found)

    def _said(self, calls: Mapping[int, str], *, missing: bool = False) -> str:
        said: dict[str, list[int]] = {}
        for rank in range(self._size) if missing else sorted(calls):
            said.setdefault(calls.get(rank, "none that is known"), []).append(rank)
        return ", ".join(
            f"{name_ranks(ranks)} {'are' if ranks[1:] else 'is'} in {call}" for call, ranks in said.items()
        )


class GlooWork(WrappedWork):
    """A collective over gloo, whose errors say which collectives the other ranks are in."""

    def __init__(self, work: Any, call: GroupCall, calls: Calls, lost: Lost | None = None) -> None:
        super().__init__(work)
        self._call, self._calls, self._lost = call, calls, lost

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Return True when it is done, or raise its error; RuntimeError after `timeout` (0: its own time limit)."""
        try:
            done = wait_for(self._work, timeout, self._lost, partial(self._calls.waits, self._call))
        except RuntimeError as error:
            ended = self._work.is_completed()  # else only `timeout` is over
            more = self._calls.after(self._call, timed_out="imed out" in str(error)) if ended else ""
            if not more:
                raise
            raise type(error)(f"{error}{more}") from error
        self._calls.ended(self._call)
        return done


def wait_for(
    work: Any, timeout: timedelta = timedelta(0), lost: Lost | None = None, waits: Callable[[], None] | None = None
) -> bool:
    """Wait for a collective over gloo; call `waits` once it has taken long.

    Raises its error, RuntimeError after `timeout` (0: its own time limit), and DistBackendError with what `lost`
    returns: where a member has ended gloo tells those alone that wait for it.
    """
    begun, look_s = time.monotonic(), LOG_AFTER_S if lost is None else LOOK_S
    until = begun + (timeout.total_seconds() or math.inf)
    while (left_s := until - time.monotonic()) > look_s:
        try:
            return bool(work.wait(timedelta(seconds=look_s)))
        except RuntimeError:  # also where it is only not done yet
            if work.is_completed():
                break  # it may have ended after that
            if lost is not None and (cause := lost()):
                raise dist.DistBackendError(cause) from None
            if waits is not None and time.monotonic() - begun >= LOG_AFTER_S:
                waits()
                look_s = math.inf if lost is None else look_s
    return bool(work.wait(timedelta(seconds=max(left_s, _LEAST_S)) if left_s < math.inf else timedelta(0)))


def within(limit_s: float, use: Callable[[], object]) -> None:
    """Use the store on another thread, for so long at most: it answers no more where its process was stopped."""

    def run() -> None:
        with suppress(RuntimeError):  # it has ended
            use()

    thread = DaemonThread(run, "p4reduce-store", failed=lambda _: None)
    thread.start()
    thread.join(limit_s)

"""Tensors in an accelerator's memory: copied to pinned host memory, summed there and copied back.

The host waits for a copy out of the device alone, before it sums. The order, as in torch's ProcessGroupGlooCuda.cpp:

    caller      records `ready` on its stream; a side stream waits for it, copies to the host and records `arrived`
    collective  waits for `arrived` (the host does); sums; the side stream copies back and records `returned`
    consumer    its stream waits for `returned`; the host goes on

Each call has a side stream and pinned memory of its own, so that one call's copy to the host, another's sum and a
third's copy back overlap. torch's caching allocator of pinned memory keeps the buffers for later calls.

The tests have a simulated accelerator; those of CUDA passed on an H200.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import torch

from p4reduce.errors import CollectiveTimeoutError

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 20e-6, 1e-3
_cuda: Any = torch.cuda  # which is not typed throughout


class Accelerator:
    """CUDA, by torch.cuda: what staging needs of a device."""

    def side_stream(self, device: torch.device) -> Any:
        """Return a stream for copies: one of torch's pool, in turn."""
        return _cuda.Stream(device, priority=-1)

    def current_stream(self, device: torch.device) -> Any:
        """Return the stream on which the caller's operations run."""
        return _cuda.current_stream(device)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Make a stream the current one of this thread and its device."""
        context: AbstractContextManager[Any] = _cuda.stream(stream)
        return context

    def event(self) -> Any:
        """Return an event, with `record(stream)`, `wait(stream)` and `query()`."""
        return _cuda.Event()

    def host_like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return pinned host memory for a tensor."""
        return torch.empty_like(tensor, device="cpu", pin_memory=True)

    def copy(self, to: torch.Tensor, source: torch.Tensor) -> None:
        """Begin a copy on the current stream."""
        to.copy_(source, non_blocking=True)

    def keep(self, tensor: torch.Tensor, stream: Any) -> None:
        """Keep the tensor's memory from being used again before what is on the stream now has ended."""
        tensor.record_stream(stream)

    def future(self, device: torch.device) -> torch.futures.Future[Any]:
        """Return a future whose waiters' streams wait for the current stream of the thread that completes it."""
        return torch.futures.Future(devices=[device])


ACCELERATORS: Final[dict[str, Callable[[], Accelerator]]] = {"cuda": Accelerator}
"""Device type, other than the CPU -> how to copy tensors from there."""


class OnHost:
    """Tensors in the host's memory: nothing is copied or waited for."""

    is_copy = False
    """Whether they are copies of the caller's tensors, so that `arrive`, `give_back` and `wait` do something."""

    def __init__(self, reads: list[torch.Tensor], writes: list[torch.Tensor]) -> None:
        self.reads, self.writes = reads, writes
        """The tensors in the host's memory, in the order in which they were given."""

    def arrive(self, timeout_s: float) -> None:
        """Return when `reads` has what the caller's tensors had; for the thread of the collective.

        Raises CollectiveTimeoutError.
        """

    def give_back(self) -> None:
        """Begin to copy `writes` to the caller's tensors; for the thread of the collective."""

    @contextmanager
    def writing(self, tensors: Sequence[torch.Tensor]) -> Iterator[None]:
        """Count operations on the caller's tensors in the block as part of `give_back`."""
        yield

    def wait(self) -> None:
        """Let the calling thread's further operations on the caller's tensors follow `give_back`."""

    def future(self) -> torch.futures.Future[Any]:
        """Return a future for `complete`."""
        return torch.futures.Future()

    def complete(self, future: torch.futures.Future[Any], value: Any) -> None:
        """Set a future's value, after `give_back`; operations of those that wait for it follow, as with `wait`."""
        future.set_result(value)


class OnDevice(OnHost):
    """Tensors on one device of an accelerator, each read or written beside its copy in pinned memory."""

    is_copy = True

    def __init__(
        self,
        accelerator: Accelerator,
        device: torch.device,
        reads: Sequence[torch.Tensor],
        writes: Sequence[torch.Tensor],
    ) -> None:
        """Begin to copy what is read; on the caller's thread. A tensor may be both read and written."""
        self._accelerator, self._device = accelerator, device
        self._side = accelerator.side_stream(device)
        self._arrived, self._returned = accelerator.event(), accelerator.event()
        self._written = [tensor.detach() for tensor in writes]
        hosts = {id(tensor): accelerator.host_like(tensor.detach()) for tensor in (*reads, *writes)}
        super().__init__([hosts[id(tensor)] for tensor in reads], [hosts[id(tensor)] for tensor in writes])
        ready = accelerator.event()
        ready.record(accelerator.current_stream(device))
        ready.wait(self._side)
        with accelerator.on(self._side):
            for tensor, host in zip(reads, self.reads, strict=True):
                accelerator.keep(tensor.detach(), self._side)
                accelerator.copy(host, tensor.detach())
        self._arrived.record(self._side)

    def arrive(self, timeout_s: float) -> None:
        deadline, pause_s = time.monotonic() + timeout_s, _FIRST_PAUSE_S
        while not self._arrived.query():  # synchronize() has no time limit
            if time.monotonic() >= deadline:
                raise CollectiveTimeoutError(
                    f"tensors on {self._device} were not copied to the host within {timeout_s:g} s: what was started "
                    "on the device before has not ended"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def give_back(self) -> None:
        with self.writing(self._written):
            for tensor, host in zip(self._written, self.writes, strict=True):
                self._accelerator.copy(tensor, host)

    @contextmanager
    def writing(self, tensors: Sequence[torch.Tensor]) -> Iterator[None]:
        for tensor in tensors:
            self._accelerator.keep(tensor.detach(), self._side)
        with self._accelerator.on(self._side):
            yield
        self._returned.record(self._side)

    def wait(self) -> None:
        self._returned.wait(self._accelerator.current_stream(self._device))

    def future(self) -> torch.futures.Future[Any]:
        return self._accelerator.future(self._device)

    def complete(self, future: torch.futures.Future[Any], value: Any) -> None:
        with self._accelerator.on(self._side):
            future.set_result(value)


def is_staged(device: torch.device) -> bool:
    """Return whether tensors of the device are summed: on the CPU or on an accelerator that is known."""
    return device.type == "cpu" or device.type in ACCELERATORS


def stage(device: torch.device, reads: list[torch.Tensor], writes: list[torch.Tensor]) -> OnHost:
    """Bring tensors of one device to the host, for a collective that reads some and writes some of them."""
    accelerator = ACCELERATORS.get(device.type)
    return OnHost(reads, writes) if accelerator is None else OnDevice(accelerator(), device, reads, writes)

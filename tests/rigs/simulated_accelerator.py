"""An accelerator without hardware: streams are queues of operations, events are flags, tensors are on the device meta.

An operation runs at a time that its schedule chooses, as long as it keeps the order of its stream and the events:

    "lazy"     not before the host waits for it
    "eager"    as soon as it may
    a number   at random, from this seed

So code that forgets to wait for something gets wrong numbers in one of them. `forget` leaves out one of the calls that
order things, by its number: a test of the test.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from p4reduce.pytorch.staging import Accelerator

Schedule = str | int


@dataclass(eq=False)
class Mark:
    stream: Stream
    passed: bool = False


@dataclass(eq=False)
class Stream:
    operations: deque[tuple[Mark | None, Callable[[], None]]] = field(default_factory=deque)
    """The operations, each with the mark that must be passed before it runs."""


class Event:
    def __init__(self, accelerator: SimulatedAccelerator) -> None:
        self._accelerator = accelerator
        self._mark: Mark | None = None

    def record(self, stream: Stream) -> None:
        if self._accelerator.leaves_out("record"):
            return
        self._mark = mark = Mark(stream)

        def passed() -> None:
            mark.passed = True

        self._accelerator.enqueue(stream, passed)

    def wait(self, stream: Stream) -> None:
        if self._mark is not None and not self._accelerator.leaves_out("wait"):
            self._accelerator.enqueue(stream, lambda: None, after=self._mark)

    def query(self) -> bool:
        """Whether it has passed; the device works while the host asks, unless it hangs."""
        if self._accelerator.hangs:
            return False
        if self._mark is not None and not self._accelerator.leaves_out("query"):
            self._accelerator.run_until(self._mark)
        return True


class OrderedFuture(torch.futures.Future):  # type: ignore[type-arg, misc]
    """A future like torch's of CUDA tensors: who waits continues behind the stream on which it was completed."""

    def __init__(self, accelerator: SimulatedAccelerator) -> None:
        super().__init__()
        self._accelerator, self._event = accelerator, Event(accelerator)

    def set_result(self, value: Any) -> None:
        self._event.record(self._accelerator.current_stream())
        super().set_result(value)

    def wait(self) -> Any:
        value = super().wait()
        self._event.wait(self._accelerator.current_stream())
        return value

    def then(self, callback: Callable[[Any], Any]) -> OrderedFuture:
        child = OrderedFuture(self._accelerator)

        def run(_: Any) -> None:
            with self._accelerator.on(self._accelerator.side_stream()):
                self._event.wait(self._accelerator.current_stream())
                try:
                    child.set_result(callback(self))
                except Exception as error:
                    child.set_exception(error)

        self.add_done_callback(run)
        return child


class SimulatedAccelerator(Accelerator):
    """One device, whose tensors `tensor` makes."""

    def __init__(self, schedule: Schedule = "lazy", forget: int | None = None) -> None:
        self.calls: list[str] = []
        """The names of the calls that order operations."""
        self.hangs = False
        self._schedule, self._forget = schedule, forget
        self._random = random.Random(schedule) if isinstance(schedule, int) else None
        self._memory: dict[int, torch.Tensor] = {}
        self._kept: set[tuple[int, int]] = set()
        self._lock = threading.RLock()
        self._thread = threading.local()
        self._default = Stream()
        self._streams = [self._default]
        self._alive: list[torch.Tensor] = []

    # What staging calls

    def side_stream(self, device: torch.device | None = None) -> Stream:
        with self._lock:
            self._streams.append(Stream())
            return self._streams[-1]

    def current_stream(self, device: torch.device | None = None) -> Stream:
        return getattr(self._thread, "stream", self._default)

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before = self.current_stream()
        self._thread.stream = stream
        try:
            yield
        finally:
            self._thread.stream = before

    def event(self) -> Event:
        return Event(self)

    def host_like(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(tensor, device="cpu").fill_(99)  # numbers that no tensor has

    def copy(self, to: torch.Tensor, source: torch.Tensor) -> None:
        stream = self.current_stream()
        for tensor in (to, source):
            if tensor.is_meta and stream is not self._default:
                assert (_storage(tensor), id(stream)) in self._kept, "the tensor's memory may be used again"

        def run() -> None:
            (self._of(to) if to.is_meta else to).copy_(self._of(source) if source.is_meta else source)

        self.enqueue(stream, run)

    def keep(self, tensor: torch.Tensor, stream: Stream) -> None:
        if not self.leaves_out("keep"):
            self._kept.add((_storage(tensor), id(stream)))

    def future(self, device: torch.device) -> OrderedFuture:
        return OrderedFuture(self)

    # What a test calls

    def tensor(self, values: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the device; the copy of the values to it is on the caller's stream."""
        held = torch.empty_like(values, device="meta")
        self._alive.append(held)  # so that no other tensor gets its storage's address
        self._memory[_storage(held)] = torch.full((held.untyped_storage().nbytes() // values.itemsize,), 88).to(
            values.dtype
        )
        values = values.clone()
        self.enqueue(self.current_stream(), lambda: self._of(held).copy_(values))
        return held

    def read(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the numbers that an operation on the caller's stream finds; the host waits for it."""
        found: list[torch.Tensor] = []
        self.enqueue(self.current_stream(), lambda: found.append(self._of(tensor).clone()))
        mark = Mark(self.current_stream())
        self.enqueue(mark.stream, lambda: setattr(mark, "passed", True))
        self.run_until(mark)
        return found[0]

    # How

    def leaves_out(self, call: str) -> bool:
        with self._lock:
            self.calls.append(call)
            return len(self.calls) - 1 == self._forget

    def enqueue(self, stream: Stream, operation: Callable[[], Any], after: Mark | None = None) -> None:
        with self._lock:
            stream.operations.append((after, operation))
            if self._schedule == "eager":
                while self._run_one(self._streams):
                    pass
            elif self._random is not None:
                for _ in range(self._random.choice((0, 0, 1, 3))):
                    self._run_one(self._random.sample(self._streams, len(self._streams)))

    def run_until(self, mark: Mark) -> None:
        """Run what must run before the mark is passed, and no more."""
        with self._lock:
            while not mark.passed:
                after, operation = mark.stream.operations[0]
                if after is not None:
                    self.run_until(after)
                mark.stream.operations.popleft()
                operation()

    def _run_one(self, streams: list[Stream]) -> bool:
        for stream in streams:
            if stream.operations and ((after := stream.operations[0][0]) is None or after.passed):
                stream.operations.popleft()[1]()
                return True
        return False

    def _of(self, tensor: torch.Tensor) -> torch.Tensor:
        memory = self._memory[_storage(tensor)]
        return memory.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)

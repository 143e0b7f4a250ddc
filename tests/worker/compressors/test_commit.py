"""A step is committed as a whole or not at all: an exception anywhere in it leaves a compressor's state as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from p4reduce.communicator import Communicator
from p4reduce.compressors import Compressor, PerParameter
from p4reduce.compressors.all_reduce import all_reduce_compressed
from rigs.ranks import MAKERS, equal, make, odd


class FailedError(Exception):
    """The error of the step that fails."""


@contextmanager
def failing(target: Any, name: str, call: int) -> Iterator[list[int]]:
    """Make a method raise FailedError, once it has done what it does, in its `call`th call; counts the calls."""
    usual: Callable[..., Any] = getattr(target, name)
    calls = [0]

    def maybe(*args: Any, **options: Any) -> Any:
        calls[0] += 1
        result = usual(*args, **options)
        if calls[0] == call:
            raise FailedError
        return result

    setattr(target, name, maybe)
    try:
        yield calls
    finally:
        delattr(target, name)


def settled(name: str, comm: Communicator, steps: int) -> Compressor:
    compressor = make(name)
    for step in range(steps):
        all_reduce_compressed(comm, compressor, odd(0, step))
    return compressor


@pytest.mark.fault("a step fails at any place, also as no frame arrives: a compressor's state is as before")
@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("name", sorted(set(MAKERS) - {"none"}))
def test_an_exception_in_any_call_of_a_step_changes_nothing(name: str, steps: int, comm: Communicator) -> None:
    """In `compress`, `decompress` or a collective, by each parameter; then the step succeeds."""
    compressor, other = (settled(name, comm, steps) for _ in range(2))
    before = compressor.state_dict()
    failures = 0
    places: list[tuple[object, str]] = [
        (compressor, "compress"),
        (comm, "all_reduce_segments"),
        (compressor, "decompress"),
    ]
    if per_parameter := isinstance(compressor, PerParameter):
        places += [(compressor, "compress_one"), (compressor, "decompress_one")]
    for target, method in places:
        for call in range(1, 20):
            with failing(target, method, call) as calls:
                try:
                    all_reduce_compressed(comm, compressor, odd(0, steps))
                except FailedError:
                    failures += 1
                else:
                    assert calls[0] < call
                    compressor.load_state_dict(before)
                    break
            assert equal(compressor.state_dict(), before), f"changed by a step that failed in {method}, call {call}"
    dense = steps < compressor.warmup_steps
    assert failures >= (9 if per_parameter and not dense else 3), (
        "the step was not made to fail: the test tests nothing"
    )
    means = [all_reduce_compressed(comm, each, odd(0, steps))[0].means for each in (compressor, other)]
    assert equal(*means)
    assert equal(compressor.state_dict(), other.state_dict()) and not equal(compressor.state_dict(), before)

"""A compressor's state: what is saved and what can be loaded; test_methods.py has that training goes on from it.

A step is committed as a whole or not at all: an exception anywhere in it leaves the state as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock, patch

import pytest
import torch

from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp, Compressor, PerParameter
from p4reduce.compressors.all_reduce import all_reduce_compressed
from rigs.ranks import MAKERS, equal, make, odd, over_switch, residue_of, through_a_file


def step_twice(compressors: list[Compressor]) -> None:
    for _ in over_switch(compressors, odd, 2):
        pass


@pytest.mark.parametrize("missing", [["scales"], ["momentum", "velocities"]])
def test_a_state_of_an_earlier_version_is_taken(missing: list[str]) -> None:
    ranks = [make("scalecom") for _ in range(2)]
    step_twice(ranks)
    state, loaded = ranks[0].state_dict(), make("scalecom")
    assert not any(state.pop(key) for key in missing)
    loaded.load_state_dict(state)
    assert equal(loaded.state_dict(), ranks[0].state_dict())


def test_the_state_is_a_copy_in_both_directions() -> None:
    one, other = ranks = [make("adacomp, momentum") for _ in range(2)]
    step_twice(ranks)
    state = one.state_dict()
    other.load_state_dict(state)
    for kept in (state["residues"], state["velocities"]):
        kept["conv"].zero_()
    for compressor in ranks:
        saved = compressor.state_dict()
        assert saved["residues"]["conv"].any() and saved["velocities"]["conv"].any()


@pytest.mark.parametrize(("name", "other"), [("adacomp", "scalecom"), ("none", "omnireduce")])
def test_the_state_of_another_compressor_is_refused(name: str, other: str) -> None:
    saved = [make(other) for _ in range(2)]
    step_twice(saved)
    compressor = make(name)
    with pytest.raises(ValueError, match=f"this is the state of {other}, not of {name}: load it into that"):
        compressor.load_state_dict(through_a_file(saved[0]))
    assert compressor.state_of("conv").steps == 0 and compressor.residue("conv") is None


def test_state_is_by_parameter_and_takes_them_in_any_order() -> None:
    def reordered(rank: int, step: int) -> dict[str, torch.Tensor]:
        return dict(reversed(odd(rank, step).items()))

    one, two = ([AdaComp(form="sum") for _ in range(2)] for _ in range(2))
    for compressors, later in ((one, odd), (two, reordered)):
        step_twice(compressors)
        for _ in over_switch(compressors, later, range(2, 4)):
            pass
    for key in ("conv", "transposed", "small"):
        assert torch.equal(residue_of(one[1], key), residue_of(two[1], key))
        assert one[0].state_of(key).scale == two[0].state_of(key).scale


class FailedError(Exception):
    """The error of the step that fails."""


@contextmanager
def failing(target: Any, name: str, call: int) -> Iterator[Mock]:
    """Make a method raise FailedError, once it has done what it does, in its `call`th call; counts the calls."""
    usual: Callable[..., Any] = getattr(target, name)

    def maybe(*args: Any, **options: Any) -> Any:
        result = usual(*args, **options)
        if patched.call_count == call:
            raise FailedError
        return result

    with patch.object(target, name, side_effect=maybe) as patched:
        yield patched


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
            with failing(target, method, call) as patched:
                try:
                    all_reduce_compressed(comm, compressor, odd(0, steps))
                except FailedError:
                    failures += 1
                else:
                    assert patched.call_count < call
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

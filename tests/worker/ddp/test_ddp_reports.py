"""What the hook reports of each backward pass: to `after_each_pass`, and as ranges in torch.profiler."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp, Policy
from p4reduce.pytorch.ddp import DDPState, PassReport
from rigs.buckets import model_of, reduce_all

TWO = {"one": (60, 50), "other": (60, 50)}
GIVEN = torch.randn(2, 60, 50, generator=torch.Generator().manual_seed(1))


def backward(state: DDPState, weights: torch.nn.Module, scale: float = 1.0) -> None:
    parameters = [*weights.parameters()]
    reduce_all(state, parameters, [*(scale * GIVEN[: len(parameters)])])


def test_each_pass_is_reported(comm: Communicator) -> None:
    weights, found = model_of(TWO), list[PassReport]()
    with DDPState(comm, AdaComp(Policy(linear=50), form="gather")) as state:
        backward(state, weights)
        state.after_each_pass(found.append)
        before = comm.stats.copy()
        backward(state, weights)
        spent = comm.stats - before
        backward(state, weights)
    first, _ = found
    assert first.seconds > 0
    assert (first.spent.bytes_up, first.spent.bytes_down) == (spent.bytes_up, spent.bytes_down)
    assert first.density == spent.blocks_up * comm.lease.block_words / GIVEN.numel()
    assert [form.value for bucket in first.buckets for form in bucket.forms.values()] == ["gather"] * 2


def test_the_density_is_that_of_the_blocks(comm: Communicator) -> None:
    weights, found = model_of({"one": (60, 50)}), list[PassReport]()
    with DDPState(comm) as state:
        state.after_each_pass(found.append)
        backward(state, weights)
        backward(state, weights, scale=0.0)
    dense, zeros = (report.density for report in found)
    assert 1 <= dense < 1.1 and zeros == 0


def test_the_threads_of_the_hook_have_ranges_in_a_profile(comm: Communicator) -> None:
    try:
        of_all_threads = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    except TypeError:
        pytest.skip("this torch profiles the thread alone that starts the profiler")
    with DDPState(comm, AdaComp()) as state:
        weights = model_of(TWO)
        with profile(activities=[ProfilerActivity.CPU], experimental_config=of_all_threads) as profiled:
            backward(state, weights)
    counts = {event.key: event.count for event in profiled.key_averages()}
    assert counts["p4reduce:compress"] == counts["p4reduce:bucket"] == 2

"""The ranges of the hook in torch.profiler."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp
from p4reduce.pytorch.ddp import DDPState
from rigs.buckets import model_of, reduce_all

TWO = {"one": (60, 50), "other": (60, 50)}
GIVEN = torch.randn(2, 60, 50, generator=torch.Generator().manual_seed(1))


def test_the_threads_of_the_hook_have_ranges_in_a_profile(comm: Communicator) -> None:
    try:
        of_all_threads = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    except TypeError:
        pytest.skip("this torch profiles the thread alone that starts the profiler")
    with DDPState(comm, AdaComp()) as state:
        weights = model_of(TWO)
        with profile(activities=[ProfilerActivity.CPU], experimental_config=of_all_threads) as profiled:
            reduce_all(state, [*weights.parameters()], [*GIVEN])
    counts = {event.key: event.count for event in profiled.key_averages()}
    assert counts["p4reduce:compress"] == counts["p4reduce:bucket"] == 2

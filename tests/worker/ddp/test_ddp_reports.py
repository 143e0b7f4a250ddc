"""What the hook reports of each backward pass: to TensorBoard, and as ranges in torch.profiler."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from p4reduce.communicator import Communicator
from p4reduce.compressors import AdaComp, Policy
from p4reduce.pytorch.ddp import DDPState
from p4reduce.pytorch.tensorboard import log_passes
from rigs.buckets import Bucket

GIVEN = torch.randn(2, 60, 50, generator=torch.Generator().manual_seed(1))


class Writer:
    def __init__(self) -> None:
        self.found: list[tuple[str, float, int]] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self.found.append((tag, scalar_value, global_step))


def backward(state: DDPState, parameters: list[torch.Tensor], scale: float = 1.0) -> None:
    for index, parameter in enumerate(parameters):
        bucket = Bucket(index, parameter, scale * GIVEN[index], last=index == len(parameters) - 1)
        state.reduce(bucket)  # type: ignore[arg-type]


def parameters() -> list[torch.Tensor]:
    return [torch.nn.Parameter(torch.zeros(60, 50)) for _ in range(2)]


def test_a_writer_gets_the_numbers_of_each_pass(comm: Communicator) -> None:
    weights, writer = parameters(), Writer()
    with DDPState(comm, AdaComp(Policy(linear=50), form="gather")) as state:
        backward(state, weights)
        assert log_passes(state, writer, first_step=7) is writer
        before = comm.stats.copy()
        backward(state, weights)
        spent = comm.stats - before
        backward(state, weights)
    first = {tag: value for tag, value, step in writer.found if step == 7}
    assert {step for _, _, step in writer.found} == {7, 8}
    assert first.pop("p4reduce/ms") > 0
    assert first == {
        "p4reduce/bytes_up": spent.bytes_up,
        "p4reduce/bytes_down": spent.bytes_down,
        "p4reduce/density": spent.blocks_up * comm.lease.block_words / GIVEN.numel(),
        "p4reduce/skipped_steps": 0,
        "p4reduce/forms/gather": 2,
    }


def test_the_density_is_that_of_the_blocks(comm: Communicator) -> None:
    weights, writer = [torch.nn.Parameter(torch.zeros(60, 50))], Writer()
    with DDPState(comm) as state:
        log_passes(state, writer)
        backward(state, weights)
        backward(state, weights, scale=0.0)
    dense, zeros = (value for tag, value, _ in writer.found if tag == "p4reduce/density")
    assert 1 <= dense < 1.1 and zeros == 0


def test_without_tensorboard_a_folder_is_refused(
    comm: Communicator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("torch.utils.tensorboard", "tensorboard"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # type: ignore[arg-type]
    with DDPState(comm) as state, pytest.raises(ImportError, match="pip install tensorboard, or give a writer"):
        log_passes(state, tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_reads_what_is_logged(comm: Communicator, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with DDPState(comm) as state:
        writer: Any = log_passes(state, tmp_path)
        for _ in range(3):
            backward(state, parameters())
        writer.close()
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert [scalar.step for scalar in read.Scalars("p4reduce/bytes_up")] == [0, 1, 2]


def test_the_threads_of_the_hook_have_ranges_in_a_profile(comm: Communicator) -> None:
    try:
        of_all_threads = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    except TypeError:
        pytest.skip("this torch profiles the thread alone that starts the profiler")
    with DDPState(comm, AdaComp()) as state:
        weights = parameters()
        with profile(activities=[ProfilerActivity.CPU], experimental_config=of_all_threads) as profiled:
            backward(state, weights)
    counts = {event.key: event.count for event in profiled.key_averages()}
    assert counts["p4reduce:compress"] == counts["p4reduce:bucket"] == 2

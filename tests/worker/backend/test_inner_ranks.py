"""Hosts whose ranks sum among themselves by another backend, and between hosts over a switch, in processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rigs.fork_server import ForkServer
from rigs.limits import LIMIT_S
from rigs.script_runs import environment
from rigs.system import System

HERE = Path(__file__).parent
ON_CUDA = pytest.param(
    2,
    "cuda",
    "nccl",
    marks=[pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")],
)
"""Two hosts of one rank each, since two ranks of NCCL do not share a GPU."""


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "device", "backend"), [(4, "cpu", "gloo"), ON_CUDA])
def test_two_hosts_sum_their_shards_over_the_switch(
    ranks: int, device: str, backend: str, wide_system: System, torch_server: ForkServer, tmp_path: Path
) -> None:
    command = str(HERE / "inner_ranks.py"), "2", device, backend
    outputs = torch_server.launch(tmp_path, ranks, *command, environment=environment(wide_system), timeout_s=LIMIT_S)
    assert all(output.endswith("ok\n") for output in outputs), "\n".join(outputs)

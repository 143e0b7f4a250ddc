"""examples/diloco.py, which sums over the switch once in 20 steps."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from p4reduce_lab.training import find_script
from rigs.fork_server import ForkServer
from rigs.limits import LIMIT_S
from rigs.script_runs import environment
from rigs.system import System

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="not installed: sklearn"),
]


@pytest.mark.parametrize("options", [[], ["--adacomp"]], ids=["dense", "adacomp"])
def test_it_trains(wide_system: System, torch_server: ForkServer, tmp_path: Path, options: list[str]) -> None:
    command = str(find_script().with_name("diloco.py")), "--steps", "100", *options
    outputs = torch_server.launch(tmp_path, 2, *command, environment=environment(wide_system), timeout_s=LIMIT_S)
    found = re.search(r"test loss (\S+) accuracy (\S+) % bytes up (\d+) down (\d+) in 100 steps", outputs[0])
    assert found is not None, outputs
    dense_bytes = 4 * 85_002  # parameters
    sums = 5
    assert float(found[2]) > 60
    if "--adacomp" in options:
        assert int(found[3]) < dense_bytes
    else:
        assert 0.8 * sums * dense_bytes < int(found[3]) < 1.2 * sums * dense_bytes  # blocks of zeros are not sent

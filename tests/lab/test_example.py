"""examples/train.py by itself, as a newcomer runs it; the demo's tests run it with several workers."""

import importlib.util
import os
from pathlib import Path

import pytest

from p4reduce_lab.training import find_script
from rigs.fork_server import ForkServer
from rigs.limits import LIMIT_S

MISSING = [name for name in ("torch", "sklearn") if importlib.util.find_spec(name) is None]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")]


def test_it_trains_over_gloo(torch_server: ForkServer, tmp_path: Path) -> None:
    command = str(find_script()), "--epochs", "1", "--batch", "64"
    (output,) = torch_server.launch(tmp_path, 1, *command, environment=os.environ, timeout_s=LIMIT_S)
    *steps, accuracy = output.splitlines()
    assert [line.partition(" loss ")[0] for line in steps] == ["step 10/22", "step 20/22", "step 22/22"]
    assert accuracy.startswith("test accuracy ") and accuracy.endswith(" %")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--compressor", "adacomp"], "--compressor needs --aggregation p4reduce"),
        (
            ["--aggregation", "p4reduce", "--compressor", "nosuch"],
            "argument --compressor: unknown compressor 'nosuch'; known are adacomp, ",
        ),
    ],
)
def test_unknown_compressors_are_refused(
    torch_server: ForkServer, tmp_path: Path, options: list[str], reason: str
) -> None:
    command = str(find_script()), *options
    (output,) = torch_server.launch(tmp_path, 1, *command, environment=os.environ, timeout_s=LIMIT_S, status=2)
    assert reason in output

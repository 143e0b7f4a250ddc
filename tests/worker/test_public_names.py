"""The names that users import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import p4reduce
from rigs.limits import LIMIT_S


def test_the_public_names() -> None:
    assert p4reduce.__all__ == [
        "AdaComp",
        "CollectiveError",
        "Communicator",
        "DDPState",
        "NoCompression",
        "OmniReduce",
        "Quantize",
        "P4ReduceError",
        "ScaleCom",
        "__version__",
        "ddp_hook",
        "join",
        "recommend",
    ]
    for name in p4reduce.__all__:
        assert getattr(p4reduce, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'NoSuchName'"):
        _ = p4reduce.NoSuchName


@pytest.mark.processes
def test_importing_p4reduce_imports_no_torch_and_nothing_of_the_command_line() -> None:
    unwanted = {"torch", "click", "rich", "cryptography", "prometheus_client", "grpc", "numba", "llvmlite"}
    code = f"import sys, p4reduce; print(sorted({unwanted!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert done.stdout.strip() == "[]"

"""The methods of the process group that torch's C++ code calls."""

from __future__ import annotations

import re
from pathlib import Path

import torch

from p4reduce.pytorch.backend.group import ProcessGroupP4Reduce

UNSUPPORTED = {"endCoalescing", "reconfigure"}
"""gloo has none of these: C++ raises an error without waiting for anything."""


def test_every_collective_of_torch_s_trampoline_is_overridden() -> None:
    """torch calls its own method with the interpreter's lock held where ours is missing."""
    (header,) = (Path(torch.__file__).parent / "include/torch/csrc/distributed/c10d").rglob("PyProcessGroup.hpp")
    methods = re.findall(r"intrusive_ptr<Work> (\w+)\([^;{}]*\) override \{(.*?)\n  \}", header.read_text(), re.DOTALL)
    names = {method: re.findall(r'"(\w+)"', body) or [method] for method, body in methods}
    assert {"allreduce", "allgather", "send", "recv"} <= names.keys()
    ours = vars(ProcessGroupP4Reduce)
    assert [method for method, ways in names.items() if not ours.keys() & {*ways}] == [
        method for method in names if method in UNSUPPORTED
    ]

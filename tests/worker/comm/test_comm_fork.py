"""A forked child of a rank: it can neither send as its parent nor end its parent's membership."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rigs.limits import LIMIT_S

SCRIPT = """
import os, sys
import numpy as np, torch
import p4reduce
from p4reduce.testing.udp_switch import UdpSwitch, connect

class Bucket:
    index, is_last = staticmethod(lambda: 0), staticmethod(lambda: True)
    buffer = staticmethod(lambda: torch.ones(3))
    gradients = parameters = staticmethod(lambda: [torch.ones(3)])

switch = UdpSwitch(1)
switch.__enter__()
comm = connect(switch.port, 0, 1)
state = p4reduce.DDPState(comm)
child = os.fork()
if child == 0:
    calls = {
        "all_reduce": lambda: comm.all_reduce(np.ones(3, np.float32)),
        "refuse": lambda: comm.refuse(ValueError("mine")),
        "check": comm.check,
        "close": comm.close,
        "hook": lambda: state.reduce(Bucket()),
        "close of state": state.close,
    }
    for name, call in calls.items():
        try:
            call()
            print(name, "went through")
        except p4reduce.errors.ForkedProcessError as error:
            assert f"of process {os.getppid()}" in str(error)
            assert "call p4reduce.join() as a rank of its own" in str(error)
            print(name, "refused")
    sys.stdout.flush()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert comm.all_reduce(np.ones(3, np.float32)).tolist() == [1, 1, 1]
assert comm.stats.stale <= comm.stats.retransmissions
state.close()
print("parent went on")
"""


@pytest.mark.fault(
    "a forked child calls its parent's communicator: ForkedProcessError in the child; the parent continues"
)
@pytest.mark.processes
def test_a_forked_child_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "all_reduce refused",
        "refuse refused",
        "check refused",
        "close refused",
        "hook refused",
        "close of state refused",
        "parent went on",
    ]

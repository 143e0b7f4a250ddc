"""What an import loads, in interpreters of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rigs.limits import LIMIT_S

COMMAND_LINE = {"grpc", "numba", "llvmlite", "cryptography", "click", "rich", "prometheus_client"}
WITHOUT: dict[str, tuple[str, set[str]]] = {
    "the package": ("import p4reduce", {"torch", *COMMAND_LINE}),
    "a command, its own package alone": (
        "from p4reduce_contracts.cli import main; main(['job', 'list', '--help'], standalone_mode=False)",
        {"p4reduce_lab", "p4reduce_switch", "torch"},
    ),
    "torch, which registers the backend, and then a group of one rank": (
        "import sys, torch.distributed as dist, torch\n"
        f"found = { {*COMMAND_LINE, 'p4reduce.pytorch.backend.group'} } & set(sys.modules)\n"
        "assert dist.is_backend_available('p4reduce') and not found, found\n"
        "dist.init_process_group('p4reduce', store=dist.HashStore(), rank=0, world_size=1)\n"
        "dist.all_reduce(torch.ones(3))",
        {"torch._dynamo"},
    ),
}


@pytest.mark.processes
def test_an_import_loads_what_it_needs_alone() -> None:
    for what, (code, unwanted) in WITHOUT.items():
        script = f"{code}\nimport sys; print(sorted({unwanted!r} & set(sys.modules)))"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0 and done.stdout.splitlines()[-1] == "[]", f"{what}: {done.stdout}{done.stderr}"

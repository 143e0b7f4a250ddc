"""Options of BMv2's simple_switch_grpc, several of which run at once."""

from __future__ import annotations

import functools
import subprocess

from rigs.limits import LIMIT_S
from rigs.ports import own_port

NAME = "simple_switch_grpc"


@functools.cache
def _has_thrift() -> bool:
    done = subprocess.run([NAME, "--help"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return "--thrift-port" in done.stdout + done.stderr


def thrift() -> list[str]:
    """Return options for a Thrift port of its own; none for a build without Thrift, which refuses them."""
    return ["--thrift-port", str(own_port())] if _has_thrift() else []

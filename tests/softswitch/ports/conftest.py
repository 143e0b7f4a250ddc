"""Network interfaces for tests that have root."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator

import pytest


@pytest.fixture
def pair() -> Iterator[tuple[str, str]]:
    """Two ends of a veth link."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("needs root and the command ip")
    tag = uuid.uuid4().hex[:8]
    ends = (f"pr{tag}a", f"pr{tag}b")
    add = ["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]]
    made = subprocess.run(add, capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"cannot make network interfaces: {made.stderr.decode().strip()}")
    try:
        for end in ends:
            quiet = ["sysctl", "-qw", f"net.ipv6.conf.{end}.disable_ipv6=1"]
            subprocess.run(quiet, capture_output=True, check=False)
            subprocess.run(["ip", "link", "set", end, "up"], check=True)
        yield ends
    finally:
        subprocess.run(["ip", "link", "del", ends[0]], check=True)

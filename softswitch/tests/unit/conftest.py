"""Network interfaces for tests that have root."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from p4reduce_switch.ports.ethernet import link_is_up
from rigs.limits import wait_until


def wait_for_link(interface: str) -> None:
    """Return when the kernel has noticed that both ends are up: what is sent before is dropped."""
    wait_until(lambda: link_is_up(interface), f"{interface} does not come up")


@contextmanager
def link() -> Iterator[tuple[str, str]]:
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
        for end in ends:
            wait_for_link(end)
        yield ends
    finally:
        subprocess.run(["ip", "link", "del", ends[0]], check=True)


@pytest.fixture
def pair() -> Iterator[tuple[str, str]]:
    """Two ends of a veth link."""
    with link() as ends:
        yield ends


@pytest.fixture
def two_pairs(pair: tuple[str, str]) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """The ends of two veth links."""
    with link() as ends:
        yield pair, ends

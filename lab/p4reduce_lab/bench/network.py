"""Hosts in network namespaces around one bridge, their links shaped by tbf.

The calling process must be alone in its network namespace (`unshare --net`, which is how cases are started), because
the bridge is made there. A host's namespace has no name: it is that of a sleeping process, so that the kernel removes
it, its links and the bridge when the processes end, whatever ends them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from p4reduce_lab.bench.case import Missing
from p4reduce_lab.processes import Child, Children

BRIDGE, DATA = "bridge", "eth0"
_PREFIX = "10.77.0"
SWITCH_ADDRESS = f"{_PREFIX}.1"
_COMMAND_S = 20.0
_LATENCY_MS = 50
_READY_S = 10.0
_serial = itertools.count()
"""For names of links: the kernel takes a moment to remove those of hosts that have gone."""


@dataclass(frozen=True)
class Link:
    """How fast a host's link is, each way; `rate_mbit` None: the loopback interface, without a shaper."""

    name: str
    rate_mbit: float | None = None
    burst_bytes: int = 0

    def __str__(self) -> str:
        if self.rate_mbit is None:
            return f"{self.name}, not shaped"
        return f"{self.name} (tbf both ways, burst {self.burst_bytes} B, latency {_LATENCY_MS} ms)"


LOOPBACK = Link("loopback")
MBIT_100 = Link("100 Mbit/s", 100, 65536)
GBIT_1 = Link("1 Gbit/s", 1000, 65536)
GBIT_1_SMALL_BURST = Link("1 Gbit/s", 1000, 16384)
GBIT_1_LARGE_BURST = Link("1 Gbit/s", 1000, 131072)
"""Of the three bursts only this one lets a TCP super-frame of 64 KB pass whole, headers included."""


@dataclass(frozen=True)
class Host:
    """One host, and the process whose network namespace is its own."""

    number: int
    holder: Child
    outside: str
    """The bridge's end of its link."""

    @property
    def address(self) -> str:
        """Its IPv4 address."""
        return f"{_PREFIX}.{10 + self.number}"

    @property
    def within(self) -> list[str]:
        """What goes before a command to run it on the host."""
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", "--"]


def build(children: Children, hosts: int) -> list[Host]:
    """Make the bridge with the switch's address, and hosts on it. Raises Missing where the machine cannot."""
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", BRIDGE, "type", "bridge")
    run("ip", "address", "add", f"{SWITCH_ADDRESS}/24", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")
    return [_add_host(children, number) for number in range(hosts)]


def remove() -> None:
    """Remove the bridge; the hosts have gone with their processes."""
    with contextlib.suppress(Missing):  # it was never made
        run("ip", "link", "delete", BRIDGE)


def shape(hosts: Sequence[Host], link: Link) -> None:
    """Give every host's link this rate and burst, both ways."""
    for host in hosts:
        for within, device in (([], host.outside), (host.within, DATA)):
            tbf = ["rate", f"{link.rate_mbit:g}mbit", "burst", str(link.burst_bytes), "latency", f"{_LATENCY_MS}ms"]
            run(*within, "tc", "qdisc", "replace", "dev", device, "root", "tbf", *tbf)


def namespace() -> str:
    """Return the network namespace of this process as the kernel names it, "" where it has none."""
    try:
        return os.readlink("/proc/self/ns/net")
    except OSError:
        return ""


def run(*command: str) -> str:
    """Run a command of the machine and return what it printed. Raises Missing with what it said."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"`{' '.join(command)}` failed: {error}") from None
    if done.returncode:
        raise Missing(f"`{' '.join(command)}` failed: {' '.join(done.stderr.split()) or 'it said nothing'}")
    return done.stdout


def _add_host(children: Children, number: int) -> Host:
    holder = children.start(f"host {number}", ["unshare", "--net", "--", "sleep", "infinity"])
    here = namespace()
    holder.wait_ready(lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != here, _READY_S)
    host = Host(number, holder, f"host{next(_serial)}")
    peer = ["peer", "name", DATA, "netns", str(holder.pid)]
    run("ip", "link", "add", host.outside, "type", "veth", *peer)
    run("ip", "link", "set", host.outside, "master", BRIDGE, "up")
    run(*host.within, "ip", "link", "set", "lo", "up")
    run(*host.within, "ip", "address", "add", f"{host.address}/24", "dev", DATA)
    run(*host.within, "ip", "link", "set", DATA, "up")
    return host


def interface_bytes(device: str) -> tuple[int, int]:
    """Return the bytes that this process's network namespace has sent and received by a device."""
    for line in Path("/proc/self/net/dev").read_text(encoding="ascii").splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == device:
            fields = counts.split()
            return int(fields[8]), int(fields[0])
    return 0, 0

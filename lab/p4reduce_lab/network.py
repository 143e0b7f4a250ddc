"""Network namespaces, bridges and veth pairs, made with the machine's own tools, for the benchmark and the testbed.

A namespace has no name: it is that of a process. When the process ends, however it ends, the kernel removes the
namespace, every interface in it, and the other end of every veth pair into it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from p4reduce_lab.errors import CommandError, MissingToolError, SetupError
from p4reduce_lab.processes import Children

COMMAND_S = 30.0
DATA = "eth0"
"""A host's interface to its switch or bridge."""
_READY_S = 10.0
_OFFLOADS = ("rx", "tx", "sg", "tso", "gso", "gro")


def run(command: Sequence[str]) -> str:
    """Run a command and return what it printed. Raises MissingToolError or CommandError."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_S, check=False
        )
    except FileNotFoundError:
        raise MissingToolError(f"{command[0]} is not on PATH") from None
    except subprocess.TimeoutExpired:
        raise CommandError(command, f"it still ran after {COMMAND_S:g} s") from None
    if done.returncode:
        raise CommandError(command, done.stderr or done.stdout)
    return done.stdout


def need_root() -> None:
    """Raise MissingToolError unless this process runs as root."""
    if os.geteuid() != 0:
        raise MissingToolError("network namespaces and interfaces need root: run with sudo")


def need(program: str, how: str) -> str:
    """Return the path of a program. Raises MissingToolError, which says how to get it."""
    path = shutil.which(program)
    if path is None:
        raise MissingToolError(f"{program} is not on PATH: {how}")
    return path


@dataclass(frozen=True)
class Namespace:
    """The network namespace of process `pid`; None: that of this process."""

    pid: int | None = None

    @property
    def within(self) -> list[str]:
        """The words before a command that run it in this namespace."""
        return [] if self.pid is None else ["nsenter", f"--net=/proc/{self.pid}/ns/net", "--"]

    def run(self, *command: str) -> str:
        """Run a command in this namespace and return what it printed. Raises MissingToolError or CommandError."""
        return run([*self.within, *command])

    def disable_ipv6(self, interface: str = "all") -> None:
        """Disable IPv6 on an interface, or on all that are there and to come: else they send frames by themselves."""
        keys = ("all", "default") if interface == "all" else (interface,)
        script = "; ".join(f"echo 1 >/proc/sys/net/ipv6/conf/{key}/disable_ipv6" for key in keys)
        with contextlib.suppress(CommandError):  # a kernel without IPv6
            self.run("sh", "-c", script)


CURRENT = Namespace()


@dataclass(frozen=True)
class Interface:
    """One end of a veth pair."""

    name: str
    namespace: Namespace = CURRENT
    mac: str | None = None
    address: str | None = None
    """IPv4 address and prefix length."""
    bridge: str | None = None
    """The bridge, in the same namespace, of which it is a port."""
    isolated: bool = False
    """Whether it reaches only ports of the bridge that are not isolated."""
    offloads: bool = True
    """False: its frames are what a wire would carry: with checksums, none longer than the MTU."""


class NetworkBuilder:
    """Makes namespaces and links; their processes are children of `children`."""

    def __init__(self, children: Children) -> None:
        self._children = children
        self._made: list[str] = []

    def add_namespace(self, name: str) -> Namespace:
        """Make a namespace with `lo` up and IPv6 disabled, held by a sleeping process.

        Raises SetupError or ProcessError.
        """
        holder = self._children.start(name, ["unshare", "--net", "--", "sleep", "infinity"])
        here = os.readlink("/proc/self/ns/net")
        holder.wait_ready(lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != here, _READY_S)
        namespace = Namespace(holder.pid)
        namespace.disable_ipv6()
        namespace.run("ip", "link", "set", "lo", "up")
        return namespace

    def add_bridge(self, name: str, namespace: Namespace = CURRENT, address: str | None = None) -> None:
        """Make a bridge, with this IPv4 address and prefix length. Raises SetupError."""
        self._need_free_name(namespace, name)
        namespace.run("ip", "link", "add", name, "type", "bridge")
        self._set_up(Interface(name, namespace, address=address))

    def add_veth(self, one: Interface, other: Interface) -> None:
        """Make a veth pair. Raises SetupError."""
        words: list[str] = []
        for end in (one, other):
            self._need_free_name(end.namespace, end.name)
            words += ["name", end.name, *(["address", end.mac] if end.mac else [])]
            words += ["netns", str(end.namespace.pid or os.getpid()), *(["type", "veth", "peer"] if end is one else [])]
        CURRENT.run("ip", "link", "add", *words)
        for end in (one, other):
            self._set_up(end)

    def close(self) -> None:
        """Remove the interfaces in this process's namespace at once; the kernel may take a moment to do it."""
        while self._made:
            with contextlib.suppress(CommandError):  # its peer has gone, and it with it
                CURRENT.run("ip", "link", "delete", self._made.pop())

    def _set_up(self, end: Interface) -> None:
        if end.namespace == CURRENT:
            self._made.append(end.name)
        end.namespace.disable_ipv6(end.name)
        if not end.offloads:
            end.namespace.run("ethtool", "-K", end.name, *(word for name in _OFFLOADS for word in (name, "off")))
        if end.bridge is not None:
            end.namespace.run("ip", "link", "set", end.name, "master", end.bridge)
        if end.isolated:
            end.namespace.run("ip", "link", "set", end.name, "type", "bridge_slave", "isolated", "on")
        if end.address is not None:
            end.namespace.run("ip", "address", "add", end.address, "dev", end.name)
        end.namespace.run("ip", "link", "set", end.name, "up")

    def _need_free_name(self, namespace: Namespace, name: str) -> None:
        with contextlib.suppress(CommandError):
            namespace.run("ip", "link", "show", name)
            raise SetupError(
                f"there already is an interface {name}: another testbed may be running. If it was left behind, "
                f"`ip link delete {name}`"
            )


def interface_bytes(device: str) -> tuple[int, int]:
    """Return the bytes that this process's network namespace has sent and received by a device."""
    for line in Path("/proc/self/net/dev").read_text(encoding="ascii").splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == device:
            fields = counts.split()
            return int(fields[8]), int(fields[0])
    return 0, 0

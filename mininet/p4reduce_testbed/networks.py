"""What the rest of the testbed needs of a network of hosts, and the plainest kind: network namespaces."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Protocol

from p4reduce_testbed import wiring
from p4reduce_testbed.commands import ip, run
from p4reduce_testbed.errors import CommandFailed
from p4reduce_testbed.sweep import namespace
from p4reduce_testbed.topology import Host, Topology

NO_IPV6 = ("net.ipv6.conf.all.disable_ipv6", "net.ipv6.conf.default.disable_ipv6")


class Network(Protocol):
    """Hosts in network namespaces of their own, and their links to the switch on this machine."""

    def open(self) -> None:
        """Make the hosts and their data links. Raises TestbedError."""

    def close(self) -> None:
        """Undo `open`, also one that failed half-way."""

    def within(self, host: Host) -> list[str]:
        """Return what goes before a command to run it on a host."""

    def namespace(self, host: Host) -> str:
        """Return the host's network namespace as `ip link set DEVICE netns` takes it: a name or a process id."""

    def prompt(self, environments: Mapping[str, Mapping[str, str]], address: str) -> None:
        """Serve a person until they leave. `environments` are the variables of each host, by name."""


class NetnsNetwork:
    """Named network namespaces made with `ip netns`, and nothing else."""

    def __init__(self, topology: Topology, mark: str) -> None:
        self._topology = topology
        self._mark = mark

    def open(self) -> None:
        for host in self._topology.hosts:
            name = self.namespace(host)
            ip("netns", "add", name)
            within = self.within(host)
            for key in NO_IPV6:
                with contextlib.suppress(CommandFailed):  # a kernel without IPv6
                    run([*within, "sysctl", "-q", "-w", f"{key}=1"])
            run([*within, "ip", "link", "set", "lo", "up"])
            outside = self._topology.switch.interface(host.port)
            wiring.add_data_link(outside, host.mac, name, self._mark)
            run([*within, "ip", "address", "add", str(host.interface), "dev", wiring.DATA])
            run([*within, "ip", "link", "set", wiring.DATA, "up"])

    def close(self) -> None:
        for host in self._topology.hosts:
            with contextlib.suppress(CommandFailed):
                ip("netns", "delete", self.namespace(host))

    def within(self, host: Host) -> list[str]:
        return ["ip", "netns", "exec", self.namespace(host)]

    def namespace(self, host: Host) -> str:
        return namespace(self._mark, host.name)

    def prompt(self, environments: Mapping[str, Mapping[str, str]], address: str) -> None:
        from p4reduce_testbed.prompt import NetnsPrompt

        NetnsPrompt(self._topology, self.within, environments, address).serve()

"""The links of a testbed: host to switch, and the management network beside it.

Each host has two interfaces: `eth0` to the switch under test, for everything that workers say to each other
and to the switch, and `mgmt0` to a bridge on this machine where the controller listens. The bridge's ports
are isolated: by the management network a host reaches the controller and no other host.
"""

from __future__ import annotations

import contextlib
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from p4reduce_testbed.commands import ip, run
from p4reduce_testbed.errors import CommandFailed, TestbedError, TopologyError
from p4reduce_testbed.offloads import turn_off
from p4reduce_testbed.sweep import alias, links
from p4reduce_testbed.topology import Host, Topology

DATA, MANAGEMENT = "eth0", "mgmt0"
BRIDGE = "p4r-mgmt"
DEFAULT_MANAGEMENT = "169.254.210.0/24"
_INSIDE = "in-"  # before the name of a switch interface: its peer, on its way to the host


@dataclass(frozen=True)
class Management:
    """The management network: the controller has its first address, the hosts those after it."""

    network: ipaddress.IPv4Network

    @classmethod
    def parse(cls, text: str, topology: Topology) -> Management:
        """Read `169.254.210.0/24`. Raises TopologyError if it cannot be used beside the topology."""
        try:
            network = ipaddress.IPv4Network(text)
        except ValueError as error:
            raise TopologyError(f"a management network is like {DEFAULT_MANAGEMENT}: {error}") from None
        if network.num_addresses < len(topology.hosts) + 3:
            raise TopologyError(f"the management network {network} is too small for the hosts")
        if network.overlaps(topology.network):
            raise TopologyError(
                f"the management network {network} overlaps the hosts' {topology.network}: choose another "
                "with --management"
            )
        return cls(network)

    @property
    def controller(self) -> str:
        """The address the controller listens on."""
        return str(self.network[1])

    def interface(self, host: Host) -> str:
        """Return the address and prefix length of a host's `mgmt0`."""
        return f"{self.network[host.rank + 2]}/{self.network.prefixlen}"


def add_bridge(management: Management, mark: str) -> None:
    """Make the management bridge and give it the controller's address."""
    _need_free_name(BRIDGE)
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("link", "set", BRIDGE, "alias", alias(mark))
    ip("address", "add", f"{management.controller}/{management.network.prefixlen}", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")


def add_data_link(outside: str, mac: str, namespace: str, mark: str) -> None:
    """Make a veth from `outside` on this machine to `eth0` in a namespace (a name, or a process id)."""
    _add_veth(outside, DATA, namespace, mark, mac)
    ip("link", "set", outside, "up")


def add_management_link(host: Host, namespace: str, mark: str) -> None:
    """Make a veth from the bridge to a host's `mgmt0`."""
    outside = f"mgmt-{host.name}"
    _add_veth(outside, MANAGEMENT, namespace, mark, None)
    ip("link", "set", outside, "master", BRIDGE)
    ip("link", "set", outside, "type", "bridge_slave", "isolated", "on")
    ip("link", "set", outside, "up")


def remove_links(mark: str) -> None:
    """Delete what the functions above made, as far as it is there."""
    for name in links(mark):
        with contextlib.suppress(CommandFailed):  # the other end went, and this one with it
            ip("link", "delete", name)


def configure(host: Host, management: Management, within: list[str]) -> None:
    """Bring a host's management interface up, and run the topology's commands on it."""
    run([*within, "ip", "address", "add", management.interface(host), "dev", MANAGEMENT])
    run([*within, "ip", "link", "set", MANAGEMENT, "up"])
    for command in host.commands:
        try:
            run([*within, "sh", "-c", command])
        except CommandFailed as error:
            raise TestbedError(f"hosts.{host.name}.commands: {error}") from error


def _add_veth(outside: str, inside: str, namespace: str, mark: str, mac: str | None) -> None:
    _need_free_name(outside)
    peer = f"{_INSIDE}{outside}"[:15]
    address = ["address", mac] if mac else []
    ip("link", "add", outside, "type", "veth", "peer", "name", peer, *address)
    ip("link", "set", outside, "alias", alias(mark))
    for interface in (outside, peer):
        turn_off(interface)
        _no_ipv6(interface)
    ip("link", "set", peer, "netns", namespace, "name", inside)


def _need_free_name(name: str) -> None:
    with contextlib.suppress(CommandFailed):
        ip("link", "show", name)
        raise TestbedError(
            f"there already is an interface {name}: does another testbed run? If it was left behind, "
            f"`ip link delete {name}`"
        )


def _no_ipv6(interface: str) -> None:
    """Turn IPv6 off: without it an interface sends nothing of its own accord."""
    switch = Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6")
    with contextlib.suppress(OSError):  # a kernel without IPv6
        switch.write_text("1")

"""The testbed's hosts and links: to the switches, between these, and to the management network beside them.

Each host has two interfaces: `eth0` to its switch, for all traffic between workers and with switches, and `mgmt0` to a
bridge behind the controller's address. The bridge's ports are isolated: over the management network a host reaches the
controller and no other host. The bridge has a namespace of its own, so that the kernel removes it with the process that
holds the namespace. So have the links between switches, each of which passes a bridge there: both ends of a plain veth
pair would be in the machine's own namespace and stay in it when the testbed is killed.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from p4reduce_lab.errors import CommandError, SetupError
from p4reduce_lab.network import DATA, Interface, Namespace, NetworkBuilder
from p4reduce_lab.shaping import shape_trunk
from p4reduce_runtime.settings import ConfigError
from p4reduce_testbed.topology import Host, Topology, Uplink

MANAGEMENT = "mgmt0"
CONTROLLER_INTERFACE = "p4r-mgmt"
DEFAULT_MANAGEMENT = "169.254.210.0/24"
_BRIDGE = "bridge"


class NetnsNetwork:
    """Hosts that are network namespaces and nothing else."""

    def __init__(self, topology: Topology, builder: NetworkBuilder, trunks: Trunks) -> None:
        self._topology, self._builder, self._trunks = topology, builder, trunks
        self._namespaces: dict[str, Namespace] = {}

    def open(self) -> None:
        """Make the hosts, their data links and the links between switches. Raises SetupError."""
        for host in self._topology.hosts:
            namespace = self._builder.add_namespace(f"host {host.name}")
            self._namespaces[host.name] = namespace
            add_data_link(self._builder, host, namespace, str(host.interface))
        for trunk in self._topology.trunks:
            self._trunks.add(trunk)

    def close(self) -> None:
        """Do nothing: the namespaces end with their processes, and the links with the namespaces."""

    def namespace(self, host: Host) -> Namespace:
        return self._namespaces[host.name]


class Trunks:
    """The links between switches, each through a bridge in a namespace of their own."""

    def __init__(self, builder: NetworkBuilder) -> None:
        self._builder = builder
        self._between: Namespace | None = None
        self._made: list[tuple[Uplink, Namespace, list[str]]] = []

    def add(self, trunk: Uplink) -> None:
        """Make the interfaces of both switches and what is between them, without offloads. Raises SetupError."""
        if self._between is None:
            self._between = self._builder.add_namespace("trunks")
        bridge = f"trunk{len(self._made)}"
        self._builder.add_bridge(bridge, self._between)
        inside = [f"{bridge}-{end}" for end in ("down", "up")]
        self._made.append((trunk, self._between, inside))
        for name, end in zip(trunk.interfaces, inside, strict=True):
            middle = Interface(end, self._between, bridge=bridge, offloads=False)
            self._builder.add_veth(Interface(name, offloads=False), middle)

    def shape(self) -> None:
        """Give each link its rate, delay and loss. Raises SetupError."""
        for trunk, between, inside in self._made:
            shape_trunk(trunk.switch, trunk.shape, trunk.interfaces, between, inside)


def add_data_link(builder: NetworkBuilder, host: Host, namespace: Namespace, address: str | None = None) -> None:
    """Make the link from a host's `eth0` to its switch port, without offloads. Raises SetupError."""
    port = Interface(host.switch_interface, offloads=False)
    builder.add_veth(port, Interface(DATA, namespace, mac=host.mac, address=address, offloads=False))


def run_host_commands(host: Host, namespace: Namespace) -> None:
    """Run the topology's commands on a host. Raises SetupError."""
    for command in host.commands:
        try:
            namespace.run("sh", "-c", command)
        except CommandError as error:
            raise SetupError(f"hosts.{host.name}.commands: {error}") from error


@dataclass(frozen=True)
class Management:
    """The management network: the controller has its first address, the hosts those after it."""

    network: ipaddress.IPv4Network

    @classmethod
    def parse(cls, text: str, topology: Topology) -> Management:
        """Read `169.254.210.0/24`. Raises ConfigError if it cannot be used beside the topology."""
        try:
            network = ipaddress.IPv4Network(text)
        except ValueError as error:
            raise ConfigError(f"a management network is like {DEFAULT_MANAGEMENT}: {error}") from None
        if network.num_addresses < len(topology.hosts) + 3:
            raise ConfigError(f"the management network {network} is too small for the hosts")
        if network.overlaps(topology.network):
            raise ConfigError(
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

    def build(self, builder: NetworkBuilder, hosts: Mapping[Host, Namespace]) -> None:
        """Make the bridge, the controller's interface on this machine and the hosts' `mgmt0`. Raises SetupError."""
        middle = builder.add_namespace("management network")
        builder.add_bridge(_BRIDGE, middle)
        controller = Interface(CONTROLLER_INTERFACE, address=f"{self.controller}/{self.network.prefixlen}")
        builder.add_veth(controller, Interface("controller", middle, bridge=_BRIDGE))
        for host, namespace in hosts.items():
            port = Interface(f"mgmt-{host.name}", middle, bridge=_BRIDGE, isolated=True, offloads=False)
            inside = Interface(MANAGEMENT, namespace, address=self.interface(host), offloads=False)
            builder.add_veth(port, inside)

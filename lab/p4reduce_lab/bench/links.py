"""The benchmark's links, and its hosts: network namespaces around one bridge, or around one in each rack.

The calling process must be alone in its network namespace (`unshare --net`, which is how cases are started), because
the bridge is made there, or that above the racks'.
"""

from __future__ import annotations

from dataclasses import dataclass

from p4reduce_lab.network import CURRENT, Interface, Namespace, NetworkBuilder
from p4reduce_lab.shaping import Shape, shape_interface

BRIDGE, DATA, UPLINK = "bridge", "eth0", "uplink"
_PREFIX = "10.77.0"
SWITCH_ADDRESS = f"{_PREFIX}.1"


@dataclass(frozen=True)
class Link:
    """A link's rate and token bucket, each way; `rate_mbit` None: without a shaper."""

    name: str
    rate_mbit: float | None = None
    burst_bytes: int = 0
    on_loopback: bool = False
    """The loopback interface takes the place of links."""

    @property
    def shape(self) -> Shape:
        """What the shaper does to each direction."""
        return Shape(rate_mbit=self.rate_mbit, burst_bytes=self.burst_bytes)

    def __str__(self) -> str:
        if self.rate_mbit is None:
            return f"{self.name}, not shaped"
        return f"{self.name} (tbf both ways, burst {self.burst_bytes} B, latency {self.shape.queue_ms:g} ms)"


LOOPBACK = Link("loopback", on_loopback=True)
VETH = Link("veth")
MBIT_100 = Link("100 Mbit/s", 100, 65536)
GBIT_1 = Link("1 Gbit/s", 1000, 65536)
GBIT_1_SMALL_BURST = Link("1 Gbit/s", 1000, 16384)
GBIT_1_LARGE_BURST = Link("1 Gbit/s", 1000, 131072)
"""Of the three bursts only this one lets a TCP super-frame of 64 KB pass whole, headers included."""


@dataclass(frozen=True)
class Rack:
    """The place of a rack's switch: a namespace with a bridge, to which its hosts and the link to the top lead."""

    number: int
    namespace: Namespace

    @property
    def address(self) -> str:
        """The switch's IPv4 address."""
        return f"{_PREFIX}.{200 + self.number}"

    @property
    def outside(self) -> str:
        """The upper end of its link."""
        return f"rack{self.number}"


@dataclass(frozen=True)
class Host:
    """One host."""

    number: int
    namespace: Namespace
    at: Namespace = CURRENT
    """Where its switch is."""

    @property
    def address(self) -> str:
        """Its IPv4 address."""
        return f"{_PREFIX}.{10 + self.number}"

    @property
    def outside(self) -> str:
        """The bridge's end of its link."""
        return f"host{self.number}"


@dataclass(frozen=True)
class Network:
    """Hosts around one bridge or, with racks, around a bridge in each rack; empty: the loopback interface."""

    hosts: tuple[Host, ...] = ()
    racks: tuple[Rack, ...] = ()

    def shape(self, link: Link) -> None:
        """Give every host's and every rack's link this rate and burst, both ways, or none."""
        ends = [end for host in self.hosts for end in ((host.at, host.outside), (host.namespace, DATA))]
        ends += [end for rack in self.racks for end in ((CURRENT, rack.outside), (rack.namespace, UPLINK))]
        for namespace, device in ends:
            if link.rate_mbit is None:
                namespace.run("tc", "qdisc", "replace", "dev", device, "root", "noqueue")
            else:
                shape_interface(link.shape, namespace, device)


def build(builder: NetworkBuilder, hosts: int, racks: int = 1) -> Network:
    """Make the bridge with the switch's address, and hosts on it. Raises SetupError where the machine cannot.

    With several `racks` the hosts are on the racks' bridges, in order, as many on each.
    """
    builder.add_bridge(BRIDGE, address=f"{SWITCH_ADDRESS}/24")
    made = []
    for number in range(racks if racks > 1 else 0):
        rack = Rack(number, builder.add_namespace(f"rack {number}"))
        builder.add_bridge(BRIDGE, rack.namespace, address=f"{rack.address}/24")
        builder.add_veth(Interface(rack.outside, bridge=BRIDGE), Interface(UPLINK, rack.namespace, bridge=BRIDGE))
        made.append(rack)
    found = []
    for number in range(hosts):
        at = made[number * racks // hosts].namespace if made else CURRENT
        host = Host(number, builder.add_namespace(f"host {number}"), at)
        inside = Interface(DATA, host.namespace, address=f"{host.address}/24")
        builder.add_veth(Interface(host.outside, at, bridge=BRIDGE), inside)
        found.append(host)
    return Network(tuple(found), tuple(made))

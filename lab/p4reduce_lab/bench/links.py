"""The benchmark's links, and its hosts: network namespaces around one bridge.

The calling process must be alone in its network namespace (`unshare --net`, which is how cases are started), because
the bridge is made there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from p4reduce_lab.network import CURRENT, DATA, Interface, Namespace, NetworkBuilder
from p4reduce_lab.shaping import Shape, shape_link

BRIDGE = "bridge"
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
        """Rate and burst of each direction, as the shaper takes them."""
        return Shape(rate_mbit=self.rate_mbit, burst_bytes=self.burst_bytes)

    def __str__(self) -> str:
        if self.rate_mbit is None:
            return f"{self.name}, not shaped"
        return f"{self.name} (tbf both ways, burst {self.burst_bytes} B, latency {self.shape.queue_ms:g} ms)"


LOOPBACK = Link("loopback", on_loopback=True)
VETH = Link("veth")
MBIT_100 = Link("100 Mbit/s", 100, 65536)
GBIT_1 = Link("1 Gbit/s", 1000, 65536)
GBIT_1_SMALL_BURST = Link("1 Gbit/s, burst 16 KB", 1000, 16384)
GBIT_1_LARGE_BURST = Link("1 Gbit/s, burst 128 KB", 1000, 131072)
"""The link with the only one of the three bursts that lets a TCP super-frame of 64 KB pass whole, with headers."""
LINKS = {link.name: link for link in (LOOPBACK, VETH, MBIT_100, GBIT_1, GBIT_1_SMALL_BURST, GBIT_1_LARGE_BURST)}
"""By name."""


@dataclass(frozen=True)
class Host:
    """A host with its own network namespace, at one port of the bridge."""

    number: int
    namespace: Namespace

    @property
    def address(self) -> str:
        """The host's IPv4 address."""
        return f"{_PREFIX}.{10 + self.number}"

    @property
    def outside(self) -> str:
        """The bridge's end of its link."""
        return f"host{self.number}"

    @property
    def ends(self) -> tuple[tuple[Namespace, str], tuple[Namespace, str]]:
        """What its link's two shapers are on: the host's own end, the bridge's."""
        return (self.namespace, DATA), (CURRENT, self.outside)


@dataclass(frozen=True)
class Network:
    """Hosts around one bridge; empty: the loopback interface."""

    hosts: tuple[Host, ...] = ()
    """The hosts of the workers."""
    servers: tuple[Host, ...] = ()
    """The hosts of switches alone."""

    def shape(self, link: Link) -> None:
        """Give every host's link this rate and burst, both ways, or none."""
        for host in self.hosts + self.servers:
            shape_link(host.outside, link.shape, host.namespace, host.outside)

    def carried(self) -> list[tuple[int, int]]:
        """Return the bytes that each link has carried up and down, hosts before servers, as their shapers count.

        That is with the headers of each frame of a GSO run, which an interface counts once.
        """
        return [(_passed(*up), _passed(*down)) for up, down in (host.ends for host in self.hosts + self.servers)]


def _passed(namespace: Namespace, device: str) -> int:
    shapers = json.loads(namespace.run("tc", "-statistics", "-json", "qdisc", "show", "dev", device))
    return int(next(shaper["bytes"] for shaper in shapers if shaper["kind"] == "tbf"))


def build(builder: NetworkBuilder, hosts: int, servers: int = 0) -> Network:
    """Make the bridge with the switch's address, and hosts on it. Raises SetupError where the machine cannot."""
    builder.add_bridge(BRIDGE, address=f"{SWITCH_ADDRESS}/24")
    made = []
    for number in range(hosts + servers):
        host = Host(number, builder.add_namespace(f"host {number}"))
        inside = Interface(DATA, host.namespace, address=f"{host.address}/24")
        builder.add_veth(Interface(host.outside, bridge=BRIDGE), inside)
        made.append(host)
    return Network(tuple(made[:hosts]), tuple(made[hosts:]))

"""The topology file: the JSON shape of the p4lang tutorials, read into frozen structs.

    {"hosts": {"h1": {"ip": "10.0.0.1/24", "mac": "02:00:00:00:01:01", "commands": ["..."]}, ...},
     "switches": {"root": {}, "leaf1": {}, ...},
     "links": [["h1", "leaf1-p1", "2ms", 100, 0.5], ["leaf1-p9", "root-p1"], ...]}

A link joins a host and a switch's port, or two switches' ports. It may end with its delay ("2ms", or a number of ms),
its rate (Mbit/s) and its loss (percent), each both ways, each null for none. Hosts are ranks in the order of the file.
The switches form a tree, whose root is the first in the file. All of them answer at one address; between each other
they use their own (`trunk_ip`, `trunk_mac`).
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from p4reduce_contracts.wire.numbers import MAX_CHILDREN, MAX_RANKS
from p4reduce_lab.shaping import Shape
from p4reduce_runtime import settings
from p4reduce_runtime.settings import ConfigError, MacAddress, Name, Settings

DEFAULT_SWITCH_MAC = MacAddress("02:00:00:00:00:01")
TRUNK_MAC = "02:00:00:00:02:{:02x}"
"""The default of a switch's `trunk_mac`, by its number in the file from 1."""
MAX_PORT = 509  # 510 is the CPU port, 511 the drop port
MAX_SWITCHES = 99
_INTERFACE_CHARACTERS = 15  # what Linux allows
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,8}")
_SWITCH_PORT = re.compile(r"(?P<switch>[A-Za-z][A-Za-z0-9_]*)-p(?P<port>\d{1,9})")
_DELAY = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>us|ms|s)?")
_RateMbit = Annotated[float, Meta(ge=0.001, le=1e6)]
_LossPercent = Annotated[float, Meta(ge=0, le=99)]
_DelayMs = Annotated[float, Meta(ge=0, le=10_000)]
_UNIT_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


@dataclass(frozen=True)
class Host:
    """A worker's host and its link to a switch."""

    name: str
    rank: int
    interface: ipaddress.IPv4Interface
    mac: str
    switch: str
    port: int
    shape: Shape = Shape()
    commands: tuple[str, ...] = ()

    @property
    def ip(self) -> str:
        """The address without its prefix length."""
        return str(self.interface.ip)

    @property
    def switch_interface(self) -> str:
        """The interface at the switch's end of the link."""
        return interface_name(self.switch, self.port)


@dataclass(frozen=True)
class Uplink:
    """A switch's link to its parent switch: the ports at both ends."""

    switch: str
    port: int
    parent: str
    parent_port: int
    shape: Shape = Shape()

    @property
    def interfaces(self) -> tuple[str, str]:
        """The interfaces of the lower and the upper switch."""
        return interface_name(self.switch, self.port), interface_name(self.parent, self.parent_port)


@dataclass(frozen=True)
class Switch:
    """A switch, the address at which hosts find it, and the address that other switches use."""

    name: str
    ip: str
    mac: str
    trunk_ip: str = ""
    trunk_mac: str = ""
    """The MAC address for other switches; like `trunk_ip` "" where there is no other switch."""
    uplink: Uplink | None = None
    """The link to the parent; None: the switch is the root."""


@dataclass(frozen=True)
class Topology:
    """A tree of switches, the first of which is the root, and their hosts."""

    switches: tuple[Switch, ...]
    hosts: tuple[Host, ...]

    @property
    def network(self) -> ipaddress.IPv4Network:
        """The subnet of all hosts."""
        return self.hosts[0].interface.network

    @property
    def trunks(self) -> tuple[Uplink, ...]:
        """The links between switches."""
        return tuple(switch.uplink for switch in self.switches if switch.uplink is not None)

    def ports(self, switch: str) -> tuple[int, ...]:
        """Return the ports of a switch that have a link, in order."""
        found = [host.port for host in self.hosts if host.switch == switch]
        for trunk in self.trunks:
            found += [trunk.port] * (trunk.switch == switch) + [trunk.parent_port] * (trunk.parent == switch)
        return tuple(sorted(found))

    def port_to(self, switch: str, host: Host) -> int:
        """Return the port of a switch that leads to a host."""
        by_name = {one.name: one for one in self.switches}
        port, at = host.port, host.switch
        while at != switch:
            uplink = by_name[at].uplink
            if uplink is None:  # the host is not below this switch
                above = by_name[switch].uplink
                assert above is not None
                return above.port
            port, at = uplink.parent_port, uplink.parent
        return port


def interface_name(switch: str, port: int) -> str:
    """Return the name of the network interface behind a switch's port, as Mininet names it."""
    return f"{switch}-eth{port}"


class _Document(Settings, frozen=True):
    """The keys of the file."""

    hosts: dict[str, Any]
    switches: dict[str, Any]
    links: tuple[Any, ...]


class _HostEntry(Settings, frozen=True):
    """The keys of hosts.NAME."""

    ip: str
    mac: MacAddress
    commands: tuple[Name, ...] = ()


class _SwitchEntry(Settings, frozen=True):
    """The keys of switches.NAME; the last three are the tutorials' and not used here."""

    ip: str = ""
    mac: MacAddress = DEFAULT_SWITCH_MAC
    trunk_ip: str = ""
    trunk_mac: MacAddress | None = None
    runtime_json: Any = None  # any JSON value: msgspec converts to `object` by our hook alone
    cli_input: Any = None
    program: Any = None


def load(path: str | os.PathLike[str]) -> Topology:
    """Read a topology file. Raises ConfigError, which names the place."""
    return settings.read_file(path, "the topology", parse)


@dataclass(frozen=True)
class _Port:
    """One end of a link."""

    switch: str
    port: int


_Link = tuple[_Port, _Port, Shape]


def parse(text: str) -> Topology:
    """Read a topology from JSON text. Raises ConfigError, which names the place."""
    document = settings.convert(settings.parse_json(text), _Document)
    hosts, switches = document.hosts, document.switches
    if not 1 <= len(hosts) <= MAX_RANKS:
        raise ConfigError(f"hosts: there are {len(hosts)}, and a job has 1 to {MAX_RANKS} workers")
    if not 1 <= len(switches) <= MAX_SWITCHES:
        raise ConfigError(f"switches: there are {len(switches)}; a testbed has 1 to {MAX_SWITCHES}")
    for name in switches:
        if name in hosts:
            raise ConfigError(f"{name!r} is both a host and a switch")
    at_switch, between = _links(document.links, hosts, switches)
    first = next(iter(switches))
    for name in hosts:
        if name not in at_switch:
            raise ConfigError(f"host {name} has no link: add [{name!r}, '{first}-p1'] to the links")
    placed = tuple(_host(name, rank, entry, *at_switch[name]) for rank, (name, entry) in enumerate(hosts.items()))
    uplinks = _tree(list(switches), between)
    made = (_switch(number, name, entry, placed, uplinks) for number, (name, entry) in enumerate(switches.items()))
    topology = Topology(tuple(made), placed)
    _check_addresses(topology)
    for switch in topology.switches:
        below = len(topology.ports(switch.name)) - (switch.uplink is not None)
        if below > MAX_CHILDREN:
            raise ConfigError(
                f"switch {switch.name} has {below} hosts and switches below it, and sums for {MAX_CHILDREN}"
            )
    return topology


def _links(
    links: tuple[Any, ...], hosts: dict[str, Any], switches: dict[str, Any]
) -> tuple[dict[str, tuple[_Port, Shape]], list[_Link]]:
    """Return the switch port and the shape of each host's link, and the links between switches."""
    found: dict[str, tuple[_Port, Shape]] = {}
    between: list[_Link] = []
    taken: set[_Port] = set()
    for index, link in enumerate(links):
        where = f"links[{index}]"
        if not isinstance(link, list) or not 2 <= len(link) <= 5:
            raise ConfigError(f"{where} must be [host, switch port, delay, rate, loss], not {link!r}")
        ends = [end for end in link[:2] if isinstance(end, str)]
        names = [end for end in ends if end in hosts]
        ports = [
            _Port(match["switch"], int(match["port"]))
            for end in ends
            if end not in hosts and (match := _SWITCH_PORT.fullmatch(end)) and match["switch"] in switches
        ]
        if len(names) + len(ports) != 2 or not ports:
            first = next(iter(switches))
            raise ConfigError(
                f"{where} must join a host and a port of a switch, like '{first}-p1', or the ports of two switches "
                f"(there are {', '.join(switches)})"
            )
        for port in ports:
            if not 0 < port.port <= MAX_PORT:
                raise ConfigError(f"{where}: ports are 1 to {MAX_PORT}, not {port.port}")
        if names and names[0] in found:
            raise ConfigError(f"{where}: host {names[0]} already has a link")
        for port in ports:
            if port in taken:
                raise ConfigError(f"{where}: port {port.port} of {port.switch} already has a link")
            taken.add(port)
        shape = _shape(where, *link[2:])
        if names:
            found[names[0]] = ports[0], shape
        else:
            between.append((ports[0], ports[1], shape))
    return found, between


def _tree(switches: Sequence[str], links: Sequence[_Link]) -> dict[str, Uplink]:
    found: dict[str, Uplink] = {}
    reached, left = [switches[0]], list(links)
    for parent in reached:
        here = [link for link in left if parent in (link[0].switch, link[1].switch)]
        left = [link for link in left if link not in here]
        for one, other, shape in here:
            upper, lower = (one, other) if one.switch == parent else (other, one)
            if lower.switch in reached:
                raise ConfigError(
                    f"the link {upper.switch}-p{upper.port} to {lower.switch}-p{lower.port} closes a loop, in which "
                    "frames would circulate for ever: the switches must form a tree"
                )
            found[lower.switch] = Uplink(lower.switch, lower.port, parent, upper.port, shape)
            reached.append(lower.switch)
    if apart := [name for name in switches if name not in reached]:
        root = switches[0]
        raise ConfigError(
            f"no links lead from {root}, the root, to {', '.join(apart)}: add ['{apart[0]}-p9', '{root}-p9'] to links"
        )
    return found


def _shape(where: str, delay: object = None, rate: object = None, loss: object = None) -> Shape:
    return Shape(
        delay_ms=_delay(where, delay),
        rate_mbit=None if rate is None else settings.convert(rate, _RateMbit, f"{where}: the rate in Mbit/s"),
        loss_percent=0.0 if loss is None else settings.convert(loss, _LossPercent, f"{where}: the loss in percent"),
    )


def _delay(where: str, delay: object) -> float:
    """Return the milliseconds of "2ms", "500us", "2" or a number of milliseconds."""
    if delay is None:
        return 0.0
    if isinstance(delay, str):
        match = _DELAY.fullmatch(delay.strip())
        if match is None:
            raise ConfigError(f"{where}: a delay is written like '2ms' or '500us', not {delay!r}")
        delay = float(match["number"]) * _UNIT_MS[match["unit"] or "ms"]
    return settings.convert(delay, _DelayMs, f"{where}: the delay in ms")


def _host(name: str, rank: int, entry: object, port: _Port, shape: Shape) -> Host:
    where = f"hosts.{name}"
    _check_name(where, name)
    host = settings.convert(entry, _HostEntry, where)
    return Host(name, rank, _interface(f"{where}.ip", host.ip), host.mac, port.switch, port.port, shape, host.commands)


def _switch(number: int, name: str, entry: object, hosts: tuple[Host, ...], uplinks: dict[str, Uplink]) -> Switch:
    where = f"switches.{name}"
    _check_name(where, name)
    switch = settings.convert(entry, _SwitchEntry, where)
    last = hosts[0].interface.network.broadcast_address - 1
    ip = _address(f"{where}.ip", switch.ip) if switch.ip else str(last)
    if not uplinks:
        return Switch(name, ip, switch.mac)
    trunk_ip = _address(f"{where}.trunk_ip", switch.trunk_ip) if switch.trunk_ip else str(last - 1 - number)
    trunk_mac = switch.trunk_mac or TRUNK_MAC.format(number + 1)
    return Switch(name, ip, switch.mac, trunk_ip, trunk_mac, uplinks.get(name))


def _check_addresses(topology: Topology) -> None:
    """Check that all are in one subnet, none is given twice, and interface names fit."""
    switches, network = topology.switches, topology.network
    for host in topology.hosts:
        if host.interface.network != network:
            raise ConfigError(
                f"{topology.hosts[0].name} is in {network} and {host.name} in {host.interface.network}: the "
                "switch does not route, so put all hosts into one subnet"
            )
        if host.interface.ip in (network.network_address, network.broadcast_address):
            raise ConfigError(f"hosts.{host.name}.ip is no host's address in {network}")
    for switch in switches:
        for port in topology.ports(switch.name):
            if len(interface := interface_name(switch.name, port)) > _INTERFACE_CHARACTERS:
                raise ConfigError(f"switches.{switch.name}: too long a name for {interface}")
        for key, ip in (("ip", switch.ip), ("trunk_ip", switch.trunk_ip)):
            if ip and ipaddress.IPv4Address(ip) not in network:
                raise ConfigError(f"switches.{switch.name}.{key} is {ip}, which is not in the hosts' {network}")
        if (switch.ip, switch.mac) != (switches[0].ip, switches[0].mac):
            raise ConfigError(
                f"switches {switches[0].name} and {switch.name} have different ip or mac: hosts send to one address, "
                "which the nearest switch takes, so give all switches the same or none"
            )
    trunks = [switch for switch in switches if switch.trunk_ip]
    for what, values in (
        ("ip", [switches[0].ip, *(one.trunk_ip for one in trunks), *(host.ip for host in topology.hosts)]),
        ("mac", [switches[0].mac, *(one.trunk_mac for one in trunks), *(host.mac for host in topology.hosts)]),
    ):
        for value in values:
            if values.count(value) > 1:
                raise ConfigError(f"the {what} {value} is given to two nodes (the switch has one as well)")


def _check_name(where: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{where}: a name is a letter and at most 8 letters or digits, like h1")


def _interface(where: str, text: str) -> ipaddress.IPv4Interface:
    """Return a host's address with its subnet."""
    try:
        interface = ipaddress.IPv4Interface(text)
    except ValueError:
        raise ConfigError(f"{where} must be like '10.0.0.1/24', not {text!r}") from None
    if interface.network.prefixlen > 30:
        raise ConfigError(f"{where} needs its subnet, like {interface.ip}/24")
    return interface


def _address(where: str, text: str) -> str:
    """Return the switch's address; a prefix length after it is ignored."""
    try:
        return str(ipaddress.IPv4Interface(text).ip)
    except ValueError:
        raise ConfigError(f"{where} must be like '10.0.0.254', not {text!r}") from None

"""The topology file: the JSON shape of the p4lang tutorials, read into frozen structs.

    {"hosts": {"h1": {"ip": "10.0.0.1/24", "mac": "02:00:00:00:01:01", "commands": ["..."]}, ...},
     "switches": {"s1": {"ip": "10.0.0.254", "mac": "02:00:00:00:00:01"}},
     "links": [["h1", "s1-p1", "2ms", 100, 0.5], ...]}

A link may end with its delay ("2ms", or a number of ms), its rate (Mbit/s) and its loss (percent), each both
ways, each null for none. Hosts are ranks in the order of the file.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from msgspec import Meta

from p4reduce_lab.shaping import Shape
from p4reduce_runtime import settings
from p4reduce_runtime.settings import ConfigError, MacAddress, Name, Settings
from p4reduce_testbed.errors import TopologyError

DEFAULT_SWITCH_MAC = MacAddress("02:00:00:00:00:01")
MAX_PORT = 509  # 510 is the CPU port, 511 the drop port
MAX_WORKERS = 32
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
    """A worker's host and its link to the switch."""

    name: str
    rank: int
    interface: ipaddress.IPv4Interface
    mac: str
    port: int
    shape: Shape = Shape()
    commands: tuple[str, ...] = ()

    @property
    def ip(self) -> str:
        """The address without its prefix length."""
        return str(self.interface.ip)


@dataclass(frozen=True)
class Switch:
    """The switch, and the address at which it aggregates."""

    name: str
    ip: str
    mac: str

    def interface(self, port: int) -> str:
        """Return the name of the network interface behind a port, as Mininet names it."""
        return f"{self.name}-eth{port}"


@dataclass(frozen=True)
class Topology:
    """One switch and its hosts."""

    switch: Switch
    hosts: tuple[Host, ...]

    @property
    def network(self) -> ipaddress.IPv4Network:
        """The subnet of all hosts."""
        return self.hosts[0].interface.network


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
    runtime_json: Any = None  # any JSON value: msgspec converts to `object` by our hook alone
    cli_input: Any = None
    program: Any = None


def load(path: str | os.PathLike[str]) -> Topology:
    """Read a topology file. Raises TopologyError."""
    with _topology_errors():
        return settings.read_file(path, "the topology", _parse)


def parse(text: str) -> Topology:
    """Read a topology from JSON text. Raises TopologyError."""
    with _topology_errors():
        return _parse(text)


@contextlib.contextmanager
def _topology_errors() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise TopologyError(str(error)) from None


def _parse(text: str) -> Topology:
    document = settings.convert(settings.parse_json(text), _Document)
    hosts, switches = document.hosts, document.switches
    if not 1 <= len(hosts) <= MAX_WORKERS:
        raise ConfigError(f"hosts: there are {len(hosts)}, and a job has 1 to {MAX_WORKERS} workers")
    if len(switches) != 1:
        raise ConfigError(f"switches: there are {len(switches)}; the testbed aggregates on exactly one")
    ((switch_name, switch),) = switches.items()
    if switch_name in hosts:
        raise ConfigError(f"{switch_name!r} is both a host and a switch")
    links = _links(document.links, hosts, switch_name)
    for name in hosts:
        if name not in links:
            raise ConfigError(f"host {name} has no link: add [{name!r}, '{switch_name}-p1'] to the links")
    placed = tuple(_host(name, rank, entry, *links[name]) for rank, (name, entry) in enumerate(hosts.items()))
    topology = Topology(_switch(switch_name, switch, placed), placed)
    _check_addresses(topology)
    return topology


def _links(links: tuple[Any, ...], hosts: dict[str, Any], switch: str) -> dict[str, tuple[int, Shape]]:
    """Return the switch port and the shape of each host's link."""
    found: dict[str, tuple[int, Shape]] = {}
    for index, link in enumerate(links):
        where = f"links[{index}]"
        if not isinstance(link, list) or not 2 <= len(link) <= 5:
            raise ConfigError(f"{where} must be [host, switch port, delay, rate, loss], not {link!r}")
        ends = [end for end in link[:2] if isinstance(end, str)]
        names = [end for end in ends if end in hosts]
        at = [match for end in ends if (match := _SWITCH_PORT.fullmatch(end)) and match["switch"] == switch]
        if len(names) != 1 or len(at) != 1:
            raise ConfigError(f"{where} must join a host and a port of {switch}, like '{switch}-p1'")
        name, port = names[0], int(at[0]["port"])
        if name in found:
            raise ConfigError(f"{where}: host {name} already has a link")
        if not 0 < port <= MAX_PORT:
            raise ConfigError(f"{where}: ports are 1 to {MAX_PORT}, not {port}")
        if any(port == other for other, _ in found.values()):
            raise ConfigError(f"{where}: port {port} of {switch} already has a link")
        found[name] = (port, _shape(where, *link[2:]))
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


def _host(name: str, rank: int, entry: object, port: int, shape: Shape) -> Host:
    where = f"hosts.{name}"
    _check_name(where, name)
    host = settings.convert(entry, _HostEntry, where)
    return Host(name, rank, _interface(f"{where}.ip", host.ip), host.mac, port, shape, host.commands)


def _switch(name: str, entry: object, hosts: tuple[Host, ...]) -> Switch:
    where = f"switches.{name}"
    _check_name(where, name)
    switch = settings.convert(entry, _SwitchEntry, where)
    last = str(hosts[0].interface.network.broadcast_address - 1)
    return Switch(name, _address(f"{where}.ip", switch.ip) if switch.ip else last, switch.mac)


def _check_addresses(topology: Topology) -> None:
    """Check that all are in one subnet, none is given twice, and interface names fit."""
    switch, network = topology.switch, topology.network
    for host in topology.hosts:
        if host.interface.network != network:
            raise ConfigError(
                f"{topology.hosts[0].name} is in {network} and {host.name} in {host.interface.network}: the "
                "switch does not route, so put all hosts into one subnet"
            )
        if len(switch.interface(host.port)) > _INTERFACE_CHARACTERS:
            raise ConfigError(f"switches.{switch.name}: too long a name for {switch.interface(host.port)}")
        if host.interface.ip in (network.network_address, network.broadcast_address):
            raise ConfigError(f"hosts.{host.name}.ip is no host's address in {network}")
    if ipaddress.IPv4Address(switch.ip) not in network:
        raise ConfigError(f"switches.{switch.name}.ip is {switch.ip}, which is not in the hosts' {network}")
    for what, values in (
        ("ip", [switch.ip, *(host.ip for host in topology.hosts)]),
        ("mac", [switch.mac, *(host.mac for host in topology.hosts)]),
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

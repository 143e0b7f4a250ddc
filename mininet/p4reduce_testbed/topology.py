"""The topology file: the JSON shape of the p4lang tutorials, read into frozen dataclasses.

    {"hosts": {"h1": {"ip": "10.0.0.1/24", "mac": "02:00:00:00:01:01", "commands": ["..."]}, ...},
     "switches": {"s1": {"ip": "10.0.0.254", "mac": "02:00:00:00:00:01"}},
     "links": [["h1", "s1-p1", "2ms", 100, 0.5], ...]}

A link may end with its delay ("2ms", or a number of ms), its rate (Mbit/s) and its loss (percent), each both
ways, each null for none. Hosts are ranks in the order of the file.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p4reduce_testbed.errors import TopologyError

DEFAULT_SWITCH_MAC = "02:00:00:00:00:01"
MAX_PORT = 509  # 510 is the CPU port, 511 the drop port
MAX_WORKERS = 32
_INTERFACE_CHARACTERS = 15  # what Linux allows
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,8}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE)
_SWITCH_PORT = re.compile(r"(?P<switch>[A-Za-z][A-Za-z0-9_]*)-p(?P<port>\d+)")
_DELAY = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>us|ms|s)?")
_UNIT_MS = {"us": 0.001, "ms": 1.0, "s": 1000.0}
_SECTIONS = ("hosts", "switches", "links")
_HOST_KEYS = ("ip", "mac", "commands")
_SWITCH_KEYS = ("ip", "mac", "runtime_json", "cli_input", "program")  # the last three: the tutorials', unused


@dataclass(frozen=True)
class Shape:
    """What a link does to frames, in each direction."""

    delay_ms: float = 0.0
    rate_mbit: float | None = None
    loss_percent: float = 0.0


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
        """The name of the network interface behind a port, as Mininet names it."""
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


def load(path: str | os.PathLike[str]) -> Topology:
    """Read a topology file. Raises TopologyError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TopologyError(f"cannot read the topology {path}: {error}") from None
    try:
        return parse(text)
    except TopologyError as error:
        raise TopologyError(f"{path}: {error}") from None


def parse(text: str) -> Topology:
    """Read a topology from JSON text. Raises TopologyError."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise TopologyError(f"not valid JSON: {error}") from None
    _keys("the topology", document, _SECTIONS)
    for section in _SECTIONS:
        if section not in document:
            raise TopologyError(f"{section!r} is missing")
    hosts, switches = _table("hosts", document["hosts"]), _table("switches", document["switches"])
    if not 1 <= len(hosts) <= MAX_WORKERS:
        raise TopologyError(f"hosts: there are {len(hosts)}, and a job has 1 to {MAX_WORKERS} workers")
    if len(switches) != 1:
        raise TopologyError(f"switches: there are {len(switches)}; the testbed aggregates on exactly one")
    ((switch_name, switch),) = switches.items()
    if switch_name in hosts:
        raise TopologyError(f"{switch_name!r} is both a host and a switch")
    links = _links(document["links"], hosts, switch_name)
    for name in hosts:
        if name not in links:
            raise TopologyError(f"host {name} has no link: add [{name!r}, '{switch_name}-p1'] to the links")
    placed = tuple(_host(name, rank, entry, *links[name]) for rank, (name, entry) in enumerate(hosts.items()))
    topology = Topology(_switch(switch_name, switch, placed), placed)
    _check_addresses(topology)
    return topology


def _links(links: Any, hosts: dict[str, Any], switch: str) -> dict[str, tuple[int, Shape]]:
    """The switch port and the shape of each host's link."""
    if not isinstance(links, list):
        raise TopologyError(f"links must be a list, not {links!r}")
    found: dict[str, tuple[int, Shape]] = {}
    for index, link in enumerate(links):
        where = f"links[{index}]"
        if not isinstance(link, list) or not 2 <= len(link) <= 5:
            raise TopologyError(f"{where} must be [host, switch port, delay, rate, loss], not {link!r}")
        ends = [end for end in link[:2] if isinstance(end, str)]
        names = [end for end in ends if end in hosts]
        at = [match for end in ends if (match := _SWITCH_PORT.fullmatch(end)) and match["switch"] == switch]
        if len(names) != 1 or len(at) != 1:
            raise TopologyError(f"{where} must join a host and a port of {switch}, like '{switch}-p1'")
        name, port = names[0], int(at[0]["port"])
        if name in found:
            raise TopologyError(f"{where}: host {name} already has a link")
        if not 0 < port <= MAX_PORT:
            raise TopologyError(f"{where}: ports are 1 to {MAX_PORT}, not {port}")
        if any(port == other for other, _ in found.values()):
            raise TopologyError(f"{where}: port {port} of {switch} already has a link")
        found[name] = (port, _shape(where, *link[2:]))
    return found


def _shape(where: str, delay: Any = None, rate: Any = None, loss: Any = None) -> Shape:
    return Shape(
        delay_ms=_delay(where, delay),
        rate_mbit=None if rate is None else _number(f"{where}: the rate in Mbit/s", rate, 0.001, 1e6),
        loss_percent=0.0 if loss is None else _number(f"{where}: the loss in percent", loss, 0, 99),
    )


def _delay(where: str, delay: Any) -> float:
    """Milliseconds of "2ms", "500us", "2" or a number of milliseconds."""
    if delay is None:
        return 0.0
    if isinstance(delay, str):
        match = _DELAY.fullmatch(delay.strip())
        if match is None:
            raise TopologyError(f"{where}: a delay is written like '2ms' or '500us', not {delay!r}")
        delay = float(match["number"]) * _UNIT_MS[match["unit"] or "ms"]
    return _number(f"{where}: the delay in ms", delay, 0, 10_000)


def _number(where: str, value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TopologyError(f"{where} must be a number, not {value!r}")
    if not low <= value <= high:
        raise TopologyError(f"{where} must be between {low:g} and {high:g}, not {value:g}")
    return float(value)


def _host(name: str, rank: int, entry: Any, port: int, shape: Shape) -> Host:
    where = f"hosts.{name}"
    _name(where, name)
    _keys(where, entry, _HOST_KEYS)
    for key in ("ip", "mac"):
        if key not in entry:
            raise TopologyError(f"{where}.{key} is missing")
    commands = entry.get("commands", [])
    if not isinstance(commands, list) or not all(isinstance(one, str) for one in commands):
        raise TopologyError(f"{where}.commands must be a list of commands, not {commands!r}")
    try:
        interface = ipaddress.IPv4Interface(entry["ip"])
    except (ValueError, TypeError):
        raise TopologyError(f"{where}.ip must be like '10.0.0.1/24', not {entry['ip']!r}") from None
    if interface.network.prefixlen > 30:
        raise TopologyError(f"{where}.ip needs its subnet, like {interface.ip}/24")
    return Host(name, rank, interface, _mac(f"{where}.mac", entry["mac"]), port, shape, tuple(commands))


def _switch(name: str, entry: Any, hosts: tuple[Host, ...]) -> Switch:
    where = f"switches.{name}"
    _name(where, name)
    _keys(where, entry, _SWITCH_KEYS)
    network = hosts[0].interface.network
    given = entry.get("ip", str(network.broadcast_address - 1))
    try:
        address = ipaddress.IPv4Interface(given).ip
    except (ValueError, TypeError):
        raise TopologyError(f"{where}.ip must be like '10.0.0.254', not {given!r}") from None
    return Switch(name, str(address), _mac(f"{where}.mac", entry.get("mac", DEFAULT_SWITCH_MAC)))


def _check_addresses(topology: Topology) -> None:
    """All in one subnet, none twice, and interface names that fit."""
    switch, network = topology.switch, topology.network
    for host in topology.hosts:
        if host.interface.network != network:
            raise TopologyError(
                f"{topology.hosts[0].name} is in {network} and {host.name} in {host.interface.network}: the "
                "switch does not route, so put all hosts into one subnet"
            )
        if len(switch.interface(host.port)) > _INTERFACE_CHARACTERS:
            raise TopologyError(f"switches.{switch.name}: too long a name for {switch.interface(host.port)}")
        if host.interface.ip in (network.network_address, network.broadcast_address):
            raise TopologyError(f"hosts.{host.name}.ip is no host's address in {network}")
    if ipaddress.IPv4Address(switch.ip) not in network:
        raise TopologyError(f"switches.{switch.name}.ip is {switch.ip}, which is not in the hosts' {network}")
    for what, values in (
        ("ip", [switch.ip, *(host.ip for host in topology.hosts)]),
        ("mac", [switch.mac, *(host.mac for host in topology.hosts)]),
    ):
        for value in values:
            if values.count(value) > 1:
                raise TopologyError(f"the {what} {value} is given to two nodes (the switch has one as well)")


def _name(where: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise TopologyError(f"{where}: a name is a letter and at most 8 letters or digits, like h1")


def _mac(where: str, value: Any) -> str:
    if not isinstance(value, str) or not _MAC.fullmatch(value):
        raise TopologyError(f"{where} must be a MAC address like 02:00:00:00:01:01, not {value!r}")
    if int(value[:2], 16) & 1:
        raise TopologyError(f"{where} must be one host's address, not the group address {value}")
    return value.lower()


def _table(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TopologyError(f"{where} must be an object of names, not {value!r}")
    return value


def _keys(where: str, value: Any, known: tuple[str, ...]) -> None:
    for key in _table(where, value):
        if key not in known:
            raise TopologyError(f"{where}: unknown key {key!r}; the keys are {', '.join(known)}")

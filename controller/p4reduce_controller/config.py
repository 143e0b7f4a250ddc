"""The controller's configuration: a TOML file read into frozen structs.

Every value has a default, which suits the embedded switch on loopback. An
unknown key, a value of the wrong type and an invalid address are errors that name the
place.
"""

from __future__ import annotations

import ipaddress
import itertools
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from p4reduce_contracts.jobs import DEFAULT_CONTROLLER
from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_contracts.wire.numbers import MAX_JOBS, MAX_SLOTS
from p4reduce_runtime import settings
from p4reduce_runtime.settings import ConfigError, HostPort, MacAddress, Name, ParsedText, Seconds, Settings
from p4reduce_runtime.underlay import AGGREGATION_PORT

_MAX_PORT_NUMBER = 509  # 510 is the CPU port, 511 the drop port
_MAX_INT32 = (1 << 31) - 1
_LOCAL_MACS = 0x0200 << 32  # locally administered addresses of one host
MAX_ELECTION_ID = (1 << 128) - 1

Section = TypeVar("Section", bound=Settings)
PortNumber = Annotated[int, Meta(ge=0, le=_MAX_PORT_NUMBER)]
Positive = Annotated[int, Meta(ge=1, le=_MAX_INT32)]
SwitchName = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")]


class HostAddress(ParsedText):
    """The IPv4 address of one host."""

    def __new__(cls, text: str) -> HostAddress:
        try:
            address = ipaddress.IPv4Address(text)
        except ValueError:
            raise ValueError(f"must be an IPv4 address like 10.0.0.254, not {text!r}") from None
        if address.is_unspecified or address.is_multicast:
            raise ValueError(f"must be the address of one host, not {text}")
        return super().__new__(cls, text)


class TofinoServer(ParsedText):
    """A P4Runtime server of a Tofino: Stratum, or that of the open SDE's drivers."""

    def __new__(cls, text: str) -> TofinoServer:
        if text not in ("stratum", "bf_switchd"):
            raise ValueError(f"must be stratum or bf_switchd, not {text!r}")
        return super().__new__(cls, text)


STRATUM, BF_SWITCHD = map(TofinoServer, ("stratum", "bf_switchd"))


def mac_value(text: str) -> int:
    """A MAC address as a number."""
    return int(text.replace(":", ""), 16)


def _check_flood(ports: tuple[int, ...]) -> None:
    if len(set(ports)) != len(ports):
        raise ConfigError(f"flood names a port twice: {list(ports)}")


class SwitchConfig(Settings, frozen=True):
    """[switch], or one of several [[switch]]: a switch to control, and the address that workers send to.

    `p4runtime` is HOST:PORT of its gRPC server, `pipeline` a geometry's name or the folder of a compiled
    program. `tofino_server` serves P4Runtime where the pipeline is a Tofino's. `address`, `mac` (by default 02:00 and
    the address) and `udp_port` are those to which workers send.
    `election_id` "auto": larger than any other controller's. Of the HELLOs at one port, `hellos_a_second` reach the
    controller, and `hello_burst` at once.

    `parent` is the name of the switch above, which sums for this one, None at the top; `uplink_port` is this switch's
    port towards it. Between switches `trunk_address` and `trunk_mac` are used, by default `address` and `mac`; a
    `trunk_address` alone has 02:00 and itself.
    `flood` are this switch's ports for frames to unknown MAC addresses, by default those under [forwarding].
    """

    name: SwitchName = ONLY_SWITCH
    parent: str | None = None
    uplink_port: PortNumber | None = None
    p4runtime: HostPort = HostPort("127.0.0.1:9559")
    device_id: Annotated[int, Meta(ge=0, le=_MAX_INT32)] = 1
    election_id: Annotated[int, Meta(ge=1)] | Literal["auto"] = "auto"
    pipeline: Name = "default"
    tofino_server: TofinoServer = STRATUM
    address: HostAddress = HostAddress("127.0.0.1")
    mac: MacAddress | None = None
    trunk_address: HostAddress | None = None
    trunk_mac: MacAddress | None = None
    udp_port: Annotated[int, Meta(ge=1, le=65535)] = AGGREGATION_PORT
    connect_timeout_s: Seconds = 10.0
    hellos_a_second: Positive = 100
    hello_burst: Positive = 200
    flood: tuple[PortNumber, ...] | None = None

    def __post_init__(self) -> None:
        if self.election_id != "auto" and self.election_id > MAX_ELECTION_ID:
            raise ConfigError("election_id must have at most 128 bits")
        if self.parent == "":
            msgspec.structs.force_setattr(self, "parent", None)
        if self.parent is not None and self.uplink_port is None:
            raise ConfigError(f"uplink_port of switch {self.name} must be its port towards its parent {self.parent}")
        if self.uplink_port is not None and self.parent is None:
            raise ConfigError(f"uplink_port of switch {self.name} needs its parent, the name of the switch above")
        _check_flood(self.flood or ())

    @property
    def ip_value(self) -> int:
        """The address that workers send to, as a number."""
        return int(ipaddress.IPv4Address(self.address))

    @property
    def mac_value(self) -> int:
        """The MAC address that workers send to, as a number."""
        return mac_value(self.mac) if self.mac else _LOCAL_MACS | self.ip_value

    @property
    def trunk_ip_value(self) -> int:
        """The address between switches, as a number."""
        return int(ipaddress.IPv4Address(self.trunk_address or self.address))

    @property
    def trunk_mac_value(self) -> int:
        """The MAC address between switches, as a number."""
        if self.trunk_mac:
            return mac_value(self.trunk_mac)
        return _LOCAL_MACS | self.trunk_ip_value if self.trunk_address else self.mac_value


class ControllerConfig(Settings, frozen=True):
    """[controller]: the job service. Times are in seconds; `state_dir` keeps the jobs and the epochs.

    `metrics` is HOST:PORT for Prometheus, None: there are none.
    """

    listen: HostPort = HostPort(DEFAULT_CONTROLLER)
    metrics: HostPort | None = None
    state_dir: str = ""
    heartbeat_interval_s: Seconds = 2.0
    heartbeat_timeout_s: Seconds = 10.0
    hello_interval_s: Seconds = 0.1

    def __post_init__(self) -> None:
        if self.heartbeat_timeout_s < 2 * self.heartbeat_interval_s:
            raise ConfigError(
                "heartbeat_timeout_s must be at least twice heartbeat_interval_s, so that one late heartbeat resets no "
                f"job: {self.heartbeat_timeout_s:g} is less than twice {self.heartbeat_interval_s:g}"
            )

    @property
    def state_path(self) -> Path:
        """Return `state_dir`, or p4reduce's folder among the user's state files."""
        if self.state_dir:
            return Path(self.state_dir).expanduser()
        base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        return Path(base).expanduser() / "p4reduce"


class SecurityConfig(Settings, frozen=True):
    """[security]: the PEM files of the controller's TLS, for the job service and for P4Runtime.

    `plain_p4runtime`: the switch serves P4Runtime without TLS. `insecure`: serve beyond loopback without TLS.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    plain_p4runtime: bool = False
    insecure: bool = False


class QuotaConfig(Settings, frozen=True):
    """[quotas]: limits of one owner (`security.peer_owner`). `slots` 0: all there are."""

    jobs: Annotated[int, Meta(ge=1, le=MAX_JOBS)] = 64
    slots: Annotated[int, Meta(ge=0, le=MAX_SLOTS)] = 0


class PortConfig(Settings, frozen=True):
    """One of [[ports]]: the host with this MAC is at this port of `switch`, whatever is learned.

    `switch` is the switch's name, "": the only one.
    """

    number: PortNumber
    mac: MacAddress
    switch: str = ""


class ForwardingConfig(Settings, frozen=True):
    """[forwarding]: plain Ethernet forwarding beside the aggregation; `flood` are ports for unknown MACs."""

    learn: bool = True
    flood: tuple[PortNumber, ...] = ()

    def __post_init__(self) -> None:
        _check_flood(self.flood)


class Config(Settings, frozen=True, rename={"switches": "switch"}):
    """The whole file."""

    switches: Annotated[tuple[SwitchConfig, ...], Meta(min_length=1)] = (SwitchConfig(),)
    controller: ControllerConfig = ControllerConfig()
    security: SecurityConfig = SecurityConfig()
    quotas: QuotaConfig = QuotaConfig()
    ports: tuple[PortConfig, ...] = ()
    forwarding: ForwardingConfig = ForwardingConfig()

    def __post_init__(self) -> None:
        _check_tree(self.switches)
        names = {switch.name for switch in self.switches}
        places: set[tuple[str, str]] = set()
        for port in self.ports:
            if port.switch not in names and (port.switch or len(names) > 1):
                reason = f"{port.mac} is behind a port of switch {port.switch!r}; there are {_listed(names)}"
                raise ConfigError(f"ports: {reason}")
            if (port.switch, port.mac) in places:
                raise ConfigError(f"ports: {port.mac} is behind two ports")
            places.add((port.switch, port.mac))


def _check_tree(switches: tuple[SwitchConfig, ...]) -> None:
    """Raise ConfigError unless the switches have names and addresses of their own, and form trees."""
    by_name = {switch.name: switch for switch in switches}
    for one, other in itertools.combinations(switches, 2):
        if one.name == other.name:
            raise ConfigError(f"two switches have the name {one.name}: give each a name of its own")
        if (one.p4runtime, one.device_id) == (other.p4runtime, other.device_id):
            raise ConfigError(
                f"switches {one.name} and {other.name} have the same p4runtime and device_id: {one.p4runtime}, "
                f"{one.device_id}"
            )
    tops: dict[str, str] = {}
    for switch in switches:
        path = [switch.name]
        while (parent := by_name[path[-1]].parent) is not None:
            if parent not in by_name:
                raise ConfigError(f"the parent of switch {path[-1]} is {parent!r}; there are {_listed(by_name)}")
            if parent in path:
                raise ConfigError(f"the parents of the switches {', '.join(sorted(path))} form a cycle")
            path.append(parent)
        tops[switch.name] = path[-1]
    for one, other in itertools.combinations(switches, 2):
        if tops[one.name] != tops[other.name]:
            continue
        if one.udp_port != other.udp_port:
            if one.trunk_ip_value == other.trunk_ip_value and AGGREGATION_PORT in (one.udp_port, other.udp_port):
                raise ConfigError(
                    f"switches {one.name} and {other.name} of one tree share an address, and one of them has the UDP "
                    f"port {AGGREGATION_PORT}, from which the other one takes nothing of its own address: use others"
                )
            continue
        for switch, neighbour in ((one, other), (other, one)):
            if switch.trunk_ip_value in (neighbour.ip_value, neighbour.trunk_ip_value):
                address = str(ipaddress.IPv4Address(switch.trunk_ip_value))
                raise ConfigError(_trunk_taken(switch, neighbour, "trunk_address", address, "address"))
        for switch, neighbour in ((one, other), (other, one)):
            if switch.trunk_mac_value in (neighbour.mac_value, neighbour.trunk_mac_value):
                mac = switch.trunk_mac_value.to_bytes(6, "big").hex(":")
                raise ConfigError(_trunk_taken(switch, neighbour, "trunk_mac", mac, "mac, or 02:00 and trunk_address"))


def _trunk_taken(switch: SwitchConfig, neighbour: SwitchConfig, key: str, value: str, default: str) -> str:
    return (
        f"{key} of switch {switch.name}, {value}, is one of switch {neighbour.name} too: give each switch of a tree "
        f"its own {key} (by default {default})"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def load(path: str | os.PathLike[str] | None = None) -> Config:
    """Read a configuration file; without one, return the defaults. Raises ConfigError."""
    return Config() if path is None else settings.read_file(path, "the configuration", parse)


def parse(text: str) -> Config:
    """Read a configuration from TOML text; the table [switch] is a list of one. Raises ConfigError."""
    tables = settings.parse_toml(text)
    if not isinstance(switch := tables.get("switch", []), list):
        settings.convert(switch, SwitchConfig, "switch")  # its errors name the table
        tables["switch"] = [switch]
    return settings.convert(tables, Config)


def override(
    config: Config,
    *,
    listen: str | None = None,
    p4runtime: str | None = None,
    pipeline: str | None = None,
    switch: str | None = None,
    insecure: bool = False,
    metrics: str | None = None,
) -> Config:
    """Return `config` with what is given in place of its own. Raises ConfigError.

    `insecure` cannot be undone. `switch` is HOST:PORT of the switch as workers see it: its address and UDP port; it and
    `p4runtime` are of the only switch. `pipeline` is that of all switches.
    """
    if len(config.switches) > 1 and (p4runtime is not None or switch is not None):
        raise ConfigError(
            f"--p4runtime and --switch are of one switch, and the configuration has {len(config.switches)}: set "
            "p4runtime, address and udp_port under each [[switch]]"
        )
    host, _, port = settings.host_port("switch", switch).rpartition(":") if switch is not None else (None, "", 0)
    return msgspec.structs.replace(
        config,
        switches=tuple(
            _changed(
                each,
                "switch",
                p4runtime=p4runtime,
                pipeline=pipeline,
                address=host,
                udp_port=int(port) if host else None,
            )
            for each in config.switches
        ),
        controller=_changed(config.controller, "controller", listen=listen, metrics=metrics),
        security=_changed(config.security, "security", insecure=insecure or None),
    )


def _changed(section: Section, place: str, **values: object) -> Section:
    """Return `section` with the values that are not None. Raises ConfigError."""
    given = {key: value for key, value in values.items() if value is not None}
    return settings.convert({**msgspec.structs.asdict(section), **given}, type(section), place)

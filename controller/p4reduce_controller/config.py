"""The controller's configuration: a TOML file read into frozen dataclasses.

Every value has a default that suits the software switch on loopback, so no file is needed for that. An
unknown key, a value of the wrong type and an address that cannot be one are errors that name the
place.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from p4reduce_contracts.jobs import DEFAULT_CONTROLLER
from p4reduce_contracts.wire import AGGREGATION_PORT, MAX_JOBS, MAX_SLOTS
from p4reduce_runtime import checked
from p4reduce_runtime.checked import ConfigError

_MAX_PORT_NUMBER = 509  # 510 is the CPU port, 511 the drop port
_MAX_INT32 = (1 << 31) - 1
MAX_ELECTION_ID = (1 << 128) - 1


@dataclass(frozen=True)
class SwitchConfig:
    """[switch]: the switch to control, and the address that workers send to.

    `p4runtime` is HOST:PORT of its gRPC server, `pipeline` a geometry's name or the folder of a compiled
    program. `address`, `mac` and `udp_port` are the switch's own in the eyes of the workers. `election_id` None, "auto"
    in the file: larger than anybody's. Of the HELLOs that come in at one port, `hellos_a_second` reach the controller,
    and `hello_burst` at once.
    """

    p4runtime: str = "127.0.0.1:9559"
    device_id: int = 1
    election_id: int | None = None
    pipeline: str = "default"
    address: str = "127.0.0.1"
    mac: str = "02:00:00:00:00:01"
    udp_port: int = AGGREGATION_PORT
    connect_timeout_s: float = 10.0
    hellos_a_second: int = 100
    hello_burst: int = 200


@dataclass(frozen=True)
class ControllerConfig:
    """[controller]: the job service. Times are in seconds; `state_dir` keeps the jobs and the epochs.

    `metrics` is HOST:PORT for Prometheus, "": there are none.
    """

    listen: str = DEFAULT_CONTROLLER
    metrics: str = ""
    state_dir: str = ""
    heartbeat_interval_s: float = 2.0
    heartbeat_timeout_s: float = 10.0
    hello_interval_s: float = 0.1

    @property
    def state_path(self) -> Path:
        """Return `state_dir`, or p4reduce's folder among the user's state files."""
        if self.state_dir:
            return Path(self.state_dir).expanduser()
        base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        return Path(base).expanduser() / "p4reduce"


@dataclass(frozen=True)
class SecurityConfig:
    """[security]: the PEM files of the controller's TLS, for the job service and for P4Runtime.

    `plain_p4runtime`: the switch speaks P4Runtime without TLS. `insecure`: serve beyond loopback without TLS.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    plain_p4runtime: bool = False
    insecure: bool = False


@dataclass(frozen=True)
class QuotaConfig:
    """[quotas]: what one owner may have: a certificate's name, or an address without TLS. `slots` 0: all there are."""

    jobs: int = 64
    slots: int = 0
    joins_a_minute: int = 1200
    leases_a_minute: int = 120


@dataclass(frozen=True)
class PortConfig:
    """One of [[ports]]: the host with this MAC is behind this switch port and is never learned elsewhere."""

    number: int
    mac: str


@dataclass(frozen=True)
class ForwardingConfig:
    """[forwarding]: plain Ethernet forwarding beside the aggregation; `flood` are ports for unknown MACs."""

    learn: bool = True
    flood: tuple[int, ...] = ()


@dataclass(frozen=True)
class Config:
    """The whole file."""

    switch: SwitchConfig = SwitchConfig()
    controller: ControllerConfig = ControllerConfig()
    security: SecurityConfig = SecurityConfig()
    quotas: QuotaConfig = QuotaConfig()
    ports: tuple[PortConfig, ...] = ()
    forwarding: ForwardingConfig = field(default_factory=ForwardingConfig)


def mac_value(text: str) -> int:
    """A MAC address as a number."""
    return int(text.replace(":", ""), 16)


def load(path: str | os.PathLike[str] | None = None) -> Config:
    """Read a configuration file; without one, return the defaults. Raises ConfigError."""
    return Config() if path is None else checked.read_file(path, "the configuration", parse)


def parse(text: str) -> Config:
    """Read a configuration from TOML text. Raises ConfigError."""
    config = checked.read(Config, checked.parse_toml(text), checks=_CONFIG)
    _check_together(config)
    return config


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

    `insecure` cannot be undone. `switch` is HOST:PORT of the switch as workers see it: its address and UDP port.
    """
    if insecure:
        config = replace(config, security=replace(config.security, insecure=True))
    of_switch: dict[str, object] = {"p4runtime": p4runtime, "pipeline": pipeline}
    if switch is not None:
        host, _, port = checked.host_port("switch", switch).rpartition(":")
        of_switch |= {"address": host, "udp_port": int(port)}
    given = {key: value for key, value in of_switch.items() if value is not None}
    config = replace(config, switch=replace(config.switch, **checked.keywords(SwitchConfig, given, "switch", _SWITCH)))
    if metrics is not None:
        door = checked.host_port("controller.metrics", metrics)
        config = replace(config, controller=replace(config.controller, metrics=door))
    if listen is None:
        return config
    address = checked.host_port("controller.listen", listen)
    return replace(config, controller=replace(config.controller, listen=address))


def _check_together(config: Config) -> None:
    """Check what no key can be blamed for alone."""
    controller = config.controller
    if controller.heartbeat_timeout_s < 2 * controller.heartbeat_interval_s:
        raise ConfigError(
            "controller.heartbeat_timeout_s must be at least twice controller.heartbeat_interval_s, so that "
            f"one late heartbeat resets no job: {controller.heartbeat_timeout_s:g} is less than twice "
            f"{controller.heartbeat_interval_s:g}"
        )
    macs = [port.mac for port in config.ports]
    for mac in macs:
        if macs.count(mac) > 1:
            raise ConfigError(f"ports: {mac} is behind two ports")


def _election_id(where: str, value: object) -> int | None:
    return None if value == "auto" else checked.whole(1, MAX_ELECTION_ID)(where, value)


def _ipv4(where: str, value: object) -> str:
    text = checked.text(where, value)
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        raise ConfigError(f"{where} must be an IPv4 address like 10.0.0.254, not {text!r}") from None
    if address.is_unspecified or address.is_multicast:
        raise ConfigError(f"{where} must be the address of one host, not {text}")
    return text


def _host_port_or_none(where: str, value: object) -> str:
    return "" if value == "" else checked.host_port(where, value)


_switch_port = checked.whole(0, _MAX_PORT_NUMBER)


def _flood(where: str, value: object) -> tuple[int, ...]:
    ports = checked.list_of(_switch_port, "port numbers")(where, value)
    if len(set(ports)) != len(ports):
        raise ConfigError(f"{where} names a port twice: {value}")
    return ports


def _ports(where: str, value: object) -> tuple[PortConfig, ...]:
    if not isinstance(value, list) or not all(isinstance(port, dict) for port in value):
        raise ConfigError(f"{where} must be written as [[{where}]] tables")
    return checked.list_of(checked.table_of(PortConfig, _PORT))(where, value)


_SWITCH: dict[str, checked.Check[Any]] = {
    "p4runtime": checked.host_port,
    "device_id": checked.whole(0, _MAX_INT32),
    "election_id": _election_id,
    "address": _ipv4,
    "mac": checked.mac,
    "udp_port": checked.whole(1, 65535),
    "connect_timeout_s": checked.seconds,
    "hellos_a_second": checked.whole(1, _MAX_INT32),
    "hello_burst": checked.whole(1, _MAX_INT32),
}
_CONTROLLER: dict[str, checked.Check[Any]] = {
    "listen": checked.host_port,
    "metrics": _host_port_or_none,
    "heartbeat_interval_s": checked.seconds,
    "heartbeat_timeout_s": checked.seconds,
    "hello_interval_s": checked.seconds,
}
_QUOTAS: dict[str, checked.Check[Any]] = {
    "jobs": checked.whole(1, MAX_JOBS),
    "slots": checked.whole(0, MAX_SLOTS),
    "joins_a_minute": checked.whole(1, _MAX_INT32),
    "leases_a_minute": checked.whole(1, _MAX_INT32),
}
_PORT: dict[str, checked.Check[Any]] = {"number": _switch_port, "mac": checked.mac}
_CONFIG: dict[str, checked.Check[Any]] = {
    "switch": checked.table_of(SwitchConfig, _SWITCH),
    "controller": checked.table_of(ControllerConfig, _CONTROLLER),
    "security": checked.table_of(SecurityConfig, {}),
    "quotas": checked.table_of(QuotaConfig, _QUOTAS),
    "ports": _ports,
    "forwarding": checked.table_of(ForwardingConfig, {"flood": _flood}),
}

"""The controller's configuration: a TOML file read into frozen dataclasses.

Every value has a default that suits the software switch on loopback, so no file is needed for that. An
unknown section or key, a value of the wrong type and an address that cannot be one are errors that name the
place.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from p4reduce_contracts.checked import ConfigError
from p4reduce_contracts.jobs import DEFAULT_CONTROLLER
from p4reduce_contracts.wire import AGGREGATION_PORT

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE)
_MAX_PORT_NUMBER = 509  # 510 is the CPU port, 511 the drop port
_MAX_INT32 = (1 << 31) - 1


@dataclass(frozen=True)
class SwitchConfig:
    """[switch]: the switch to control, and the address that workers send to.

    `p4runtime` is HOST:PORT of its gRPC server, `pipeline` a geometry's name or the folder of a compiled
    program. `address`, `mac` and `udp_port` are the switch's own in the eyes of the workers.
    """

    p4runtime: str = "127.0.0.1:9559"
    device_id: int = 1
    election_id: int = 1
    pipeline: str = "default"
    address: str = "127.0.0.1"
    mac: str = "02:00:00:00:00:01"
    udp_port: int = AGGREGATION_PORT
    connect_timeout_s: float = 10.0


@dataclass(frozen=True)
class ControllerConfig:
    """[controller]: the job service. Times are in seconds; `state_dir` keeps the epoch counter."""

    listen: str = DEFAULT_CONTROLLER
    state_dir: str = ""
    heartbeat_interval_s: float = 2.0
    heartbeat_timeout_s: float = 10.0
    hello_interval_s: float = 0.1

    @property
    def state_path(self) -> Path:
        """`state_dir`, or p4reduce's folder among the user's state files."""
        if self.state_dir:
            return Path(self.state_dir).expanduser()
        base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
        return Path(base).expanduser() / "p4reduce"


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
    """All of it."""

    switch: SwitchConfig = SwitchConfig()
    controller: ControllerConfig = ControllerConfig()
    ports: tuple[PortConfig, ...] = ()
    forwarding: ForwardingConfig = field(default_factory=ForwardingConfig)


def mac_value(text: str) -> int:
    """A MAC address as a number."""
    return int(text.replace(":", ""), 16)


def load(path: str | os.PathLike[str] | None = None) -> Config:
    """Read a configuration file; without one, the defaults. Raises ConfigError."""
    if path is None:
        return Config()
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the configuration {path}: {error}") from None
    try:
        return parse(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse(text: str) -> Config:
    """Read a configuration from TOML text. Raises ConfigError."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}") from None
    known = [one.name for one in fields(Config)]
    for name in document:
        if name not in known:
            raise ConfigError(f"unknown section [{name}]; the sections are {', '.join(known)}")
    ports = document.get("ports", [])
    if not isinstance(ports, list) or not all(isinstance(port, dict) for port in ports):
        raise ConfigError("ports must be written as [[ports]] tables")
    config = Config(
        switch=SwitchConfig(**_section("switch", SwitchConfig, document.get("switch", {}))),
        controller=ControllerConfig(
            **_section("controller", ControllerConfig, document.get("controller", {}))
        ),
        ports=tuple(
            PortConfig(**_section(f"ports[{index}]", PortConfig, port)) for index, port in enumerate(ports)
        ),
        forwarding=ForwardingConfig(
            **_section("forwarding", ForwardingConfig, document.get("forwarding", {}))
        ),
    )
    _check_together(config)
    return config


def override(config: Config, *, switch: str | None = None, **values: str | None) -> Config:
    """`config` with the given values (listen, p4runtime, pipeline) in place of its own.

    `switch` is HOST:PORT of the switch as workers see it: its address and UDP port.
    """
    place = {
        "listen": ("controller", ControllerConfig),
        "p4runtime": ("switch", SwitchConfig),
        "pipeline": ("switch", SwitchConfig),
        "address": ("switch", SwitchConfig),
        "udp_port": ("switch", SwitchConfig),
    }
    given: dict[str, str | int | None] = dict(values)
    if switch is not None:
        host, _, port = _host_port("switch", switch).rpartition(":")
        given |= {"address": host, "udp_port": int(port)}
    for key, value in given.items():
        if value is not None:
            section, cls = place[key]
            checked = _section(section, cls, {key: value})
            config = replace(config, **{section: replace(getattr(config, section), **checked)})
    return config


def _section(name: str, cls: type[Any], values: object) -> dict[str, Any]:
    """The checked keyword arguments of dataclass `cls` from one TOML table."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{name} must be a table, written as [{name}]")
    known = [one.name for one in fields(cls)]
    for key in values:
        if key not in known:
            raise ConfigError(f"unknown key {name}.{key}; the keys of {name} are {', '.join(known)}")
    if cls is PortConfig:
        for key in known:
            if key not in values:
                raise ConfigError(f"{name}.{key} is missing")
    return {key: _CHECKS[key](f"{name}.{key}", value) for key, value in values.items()}


def _check_together(config: Config) -> None:
    """What no key can be blamed for alone."""
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


def _text(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{where} must be a string, not {value!r}")
    if not value:
        raise ConfigError(f"{where} must not be empty")
    return value


def _int(low: int, high: int) -> Callable[[str, object], int]:
    def check(where: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{where} must be a whole number, not {value!r}")
        if not low <= value <= high:
            raise ConfigError(f"{where} must be between {low} and {high}, not {value}")
        return value

    return check


def _seconds(where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where} must be a number of seconds, not {value!r}")
    if not 0 < value < float("inf"):
        raise ConfigError(f"{where} must be more than 0 seconds, not {value}")
    return float(value)


def _flag(where: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{where} must be true or false, not {value!r}")
    return value


def _ports(where: str, value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ConfigError(f"{where} must be a list of port numbers, not {value!r}")
    number = _int(0, _MAX_PORT_NUMBER)
    ports = tuple(number(f"{where}[{index}]", port) for index, port in enumerate(value))
    if len(set(ports)) != len(ports):
        raise ConfigError(f"{where} names a port twice: {value}")
    return ports


def _ipv4(where: str, value: object) -> str:
    text = _text(where, value)
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        raise ConfigError(f"{where} must be an IPv4 address like 10.0.0.254, not {text!r}") from None
    if address.is_unspecified or address.is_multicast:
        raise ConfigError(f"{where} must be the address of one host, not {text}")
    return text


def _mac(where: str, value: object) -> str:
    text = _text(where, value)
    if not _MAC.fullmatch(text):
        raise ConfigError(f"{where} must be a MAC address like 02:00:00:00:00:01, not {text!r}")
    if int(text[:2], 16) & 1:
        raise ConfigError(f"{where} must be the address of one host, not the group address {text}")
    return text.lower()


def _host_port(where: str, value: object) -> str:
    text = _text(where, value)
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"{where} must be HOST:PORT like 127.0.0.1:9600, not {text!r}")
    return text


_CHECKS: dict[str, Callable[[str, object], Any]] = {
    "p4runtime": _host_port,
    "device_id": _int(0, _MAX_INT32),
    "election_id": _int(1, _MAX_INT32),
    "pipeline": _text,
    "address": _ipv4,
    "mac": _mac,
    "udp_port": _int(1, 65535),
    "connect_timeout_s": _seconds,
    "listen": _host_port,
    "state_dir": _text,
    "heartbeat_interval_s": _seconds,
    "heartbeat_timeout_s": _seconds,
    "hello_interval_s": _seconds,
    "number": _int(0, _MAX_PORT_NUMBER),
    "learn": _flag,
    "flood": _ports,
}

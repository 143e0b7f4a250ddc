"""The controller's configuration: a TOML file read into frozen structs.

Every value has a default, which suits the embedded switch on loopback. An
unknown key, a value of the wrong type and an invalid address are errors that name the
place.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from p4reduce_contracts.jobs import DEFAULT_CONTROLLER
from p4reduce_contracts.wire import AGGREGATION_PORT, MAX_JOBS, MAX_SLOTS
from p4reduce_runtime import settings
from p4reduce_runtime.settings import ConfigError, HostPort, MacAddress, Name, ParsedText, Seconds, Settings

_MAX_PORT_NUMBER = 509  # 510 is the CPU port, 511 the drop port
_MAX_INT32 = (1 << 31) - 1
MAX_ELECTION_ID = (1 << 128) - 1

Section = TypeVar("Section", bound=Settings)
PortNumber = Annotated[int, Meta(ge=0, le=_MAX_PORT_NUMBER)]
Positive = Annotated[int, Meta(ge=1, le=_MAX_INT32)]


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


class OptionalHostPort(ParsedText):
    """HOST:PORT, or nothing."""

    def __new__(cls, text: str) -> OptionalHostPort:
        return super().__new__(cls, text and HostPort(text))


class SwitchConfig(Settings, frozen=True):
    """[switch]: the switch to control, and the address that workers send to.

    `p4runtime` is HOST:PORT of its gRPC server, `pipeline` a geometry's name or the folder of a compiled
    program. `address`, `mac` and `udp_port` are those to which workers send. `election_id` "auto":
    larger than any other controller's. Of the HELLOs at one port, `hellos_a_second` reach the controller, and
    `hello_burst` at once.
    """

    p4runtime: HostPort = HostPort("127.0.0.1:9559")
    device_id: Annotated[int, Meta(ge=0, le=_MAX_INT32)] = 1
    election_id: Annotated[int, Meta(ge=1)] | Literal["auto"] = "auto"
    pipeline: Name = "default"
    address: HostAddress = HostAddress("127.0.0.1")
    mac: MacAddress = MacAddress("02:00:00:00:00:01")
    udp_port: Annotated[int, Meta(ge=1, le=65535)] = AGGREGATION_PORT
    connect_timeout_s: Seconds = 10.0
    hellos_a_second: Positive = 100
    hello_burst: Positive = 200

    def __post_init__(self) -> None:
        if self.election_id != "auto" and self.election_id > MAX_ELECTION_ID:
            raise ConfigError("election_id must have at most 128 bits")


class ControllerConfig(Settings, frozen=True):
    """[controller]: the job service. Times are in seconds; `state_dir` keeps the jobs and the epochs.

    `metrics` is HOST:PORT for Prometheus, "": there are none.
    """

    listen: HostPort = HostPort(DEFAULT_CONTROLLER)
    metrics: OptionalHostPort = OptionalHostPort("")
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
    """[quotas]: limits of one owner: a certificate's name or, without TLS, an address. `slots` 0: all there are."""

    jobs: Annotated[int, Meta(ge=1, le=MAX_JOBS)] = 64
    slots: Annotated[int, Meta(ge=0, le=MAX_SLOTS)] = 0
    joins_a_minute: Positive = 1200
    leases_a_minute: Positive = 120


class PortConfig(Settings, frozen=True):
    """One of [[ports]]: the host with this MAC is at this switch port, whatever is learned."""

    number: PortNumber
    mac: MacAddress


class ForwardingConfig(Settings, frozen=True):
    """[forwarding]: plain Ethernet forwarding beside the aggregation; `flood` are ports for unknown MACs."""

    learn: bool = True
    flood: tuple[PortNumber, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.flood)) != len(self.flood):
            raise ConfigError(f"flood names a port twice: {list(self.flood)}")


class Config(Settings, frozen=True):
    """The whole file."""

    switch: SwitchConfig = SwitchConfig()
    controller: ControllerConfig = ControllerConfig()
    security: SecurityConfig = SecurityConfig()
    quotas: QuotaConfig = QuotaConfig()
    ports: tuple[PortConfig, ...] = ()
    forwarding: ForwardingConfig = ForwardingConfig()

    def __post_init__(self) -> None:
        macs = [port.mac for port in self.ports]
        for mac in macs:
            if macs.count(mac) > 1:
                raise ConfigError(f"ports: {mac} is behind two ports")


def mac_value(text: str) -> int:
    """A MAC address as a number."""
    return int(text.replace(":", ""), 16)


def load(path: str | os.PathLike[str] | None = None) -> Config:
    """Read a configuration file; without one, return the defaults. Raises ConfigError."""
    return Config() if path is None else settings.read_file(path, "the configuration", parse)


def parse(text: str) -> Config:
    """Read a configuration from TOML text. Raises ConfigError."""
    return settings.convert(settings.parse_toml(text), Config)


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
    host, _, port = settings.host_port("switch", switch).rpartition(":") if switch is not None else (None, "", 0)
    return msgspec.structs.replace(
        config,
        switch=_changed(
            config.switch,
            "switch",
            p4runtime=p4runtime,
            pipeline=pipeline,
            address=host,
            udp_port=int(port) if host else None,
        ),
        controller=_changed(config.controller, "controller", listen=listen, metrics=metrics),
        security=_changed(config.security, "security", insecure=insecure or None),
    )


def _changed(section: Section, place: str, **values: object) -> Section:
    """Return `section` with the values that are not None. Raises ConfigError."""
    given = {key: value for key, value in values.items() if value is not None}
    return settings.convert({**msgspec.structs.asdict(section), **given}, type(section), place)

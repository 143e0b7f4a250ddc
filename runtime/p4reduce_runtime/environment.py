"""The environment variables of p4reduce, each declared once; docs/configuration.md gets its list from here."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from p4reduce_runtime.settings import ConfigError, HostPort

T = TypeVar("T")


@dataclass(frozen=True)
class Kind(Generic[T]):
    """The values that a variable may have. `parse` raises ValueError for others, and gets "" where there is none."""

    name: str
    parse: Callable[[str], T]


@dataclass(frozen=True)
class Variable(Generic[T]):
    """A variable of the environment; as text it is its name."""

    name: str
    kind: Kind[T]
    meaning: str
    """One line of Markdown, with links as in a page of docs/."""
    default: str = ""
    """The text that counts where the variable is not set; "": nothing."""

    def read(self, environment: Mapping[str, str] = os.environ) -> T:
        """Return its value, that of the default where it is not set or empty. Raises ConfigError, which names it."""
        try:
            return self.kind.parse(self.text(environment) or self.default)
        except ValueError as error:
            raise ConfigError(f"{self.name} {error}") from None

    def text(self, environment: Mapping[str, str] = os.environ) -> str:
        """Return what it is set to, "" where it is not."""
        return environment.get(self.name, "")

    def __str__(self) -> str:
        return self.name


def _one_of(values: Mapping[str, T]) -> Kind[T]:
    *most, last = values
    name = f"{', '.join(most)} or {last}"

    def parse(text: str) -> T:
        if text not in values:
            raise ValueError(f"is {text!r}; it has to be {name}")
        return values[text]

    return Kind(name, parse)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"is {text!r}; it has to be a whole number") from None


_TEXT: Final = Kind("text", str)
_NUMBER: Final = Kind("number", _whole)
_FILE: Final = Kind("file", str)
_FOLDER: Final = Kind("folder", str)
_SERVICE: Final = Kind("HOST:PORT", str)
_ADDRESS: Final = Kind("HOST:PORT", lambda text: HostPort(text) if text else None)
_ON_OFF: Final = _one_of({"on": True, "off": False})
_ZERO_ONE: Final = _one_of({"0": False, "1": True})
_AUTO: Final = _one_of({"auto": None, "on": True, "off": False})

P4REDUCE_CONTROLLER: Final = Variable(
    "P4REDUCE_CONTROLLER",
    _SERVICE,
    "the job service; without it, the backend [starts one](torch-backend.md#switches-of-the-launch)",
    "127.0.0.1:9600",
)
P4REDUCE_CA: Final = Variable("P4REDUCE_CA", _FILE, "the authority's certificate, for [TLS](security.md#certificates)")
P4REDUCE_CERT: Final = Variable("P4REDUCE_CERT", _FILE, "this program's certificate")
P4REDUCE_KEY: Final = Variable("P4REDUCE_KEY", _FILE, "its private key")
P4REDUCE_INSECURE: Final = Variable(
    "P4REDUCE_INSECURE", _ZERO_ONE, "1 permits a controller without TLS, and metrics, beyond loopback", "0"
)
P4REDUCE_TOKEN: Final = Variable("P4REDUCE_TOKEN", _TEXT, "the token of a private job")
P4REDUCE_LAUNCH: Final = Variable(
    "P4REDUCE_LAUNCH", _ON_OFF, "`off`: the backend starts no controller and no switch", "on"
)
P4REDUCE_JOB: Final = Variable("P4REDUCE_JOB", _TEXT, "the job that `p4reduce.join()` joins")
P4REDUCE_SWITCH: Final = Variable(
    "P4REDUCE_SWITCH",
    _TEXT,
    "the [switch](racks.md) that this rank sends to; by default all [side by side](racks.md#switches-side-by-side)",
)
P4REDUCE_COMPRESSOR: Final = Variable(
    "P4REDUCE_COMPRESSOR", _TEXT, "how the backend [compresses](torch-backend.md#compression), such as `quantize`"
)
P4REDUCE_HOSTS: Final = Variable(
    "P4REDUCE_HOSTS", _ON_OFF, "`off`, on one rank or all: [ranks of a host](hosts.md) send for themselves", "on"
)
P4REDUCE_HOSTID: Final = Variable(
    "P4REDUCE_HOSTID", _TEXT, "ranks with the same text are on one host, those with another are not"
)
P4REDUCE_SEGMENTATION: Final = Variable(
    "P4REDUCE_SEGMENTATION",
    _AUTO,
    "`on` or `off`: several frames as one UDP GSO datagram; `auto` probes the path",
    "auto",
)
P4REDUCE_METRICS: Final = Variable(
    "P4REDUCE_METRICS", _ADDRESS, "the rank's [metrics](operations.md#metrics); its `LOCAL_RANK` is added to the port"
)
P4REDUCE_SWITCH_THREADS: Final = Variable(
    "P4REDUCE_SWITCH_THREADS", _NUMBER, "`--threads` of `p4reduce switch run`", "1"
)
P4REDUCE_TRACE: Final = Variable("P4REDUCE_TRACE", _FILE, "the ranks write a [trace](training.md#trace) there")
P4REDUCE_SUMMARY: Final = Variable("P4REDUCE_SUMMARY", _ON_OFF, "`off`: rank 0 logs no summary at the end", "on")
P4REDUCE_CACHE_DIR: Final = Variable(
    "P4REDUCE_CACHE_DIR", _FOLDER, "[compiled code](security.md#files), of switch and controller too"
)

VARIABLES: Final[tuple[Variable[object], ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Variable)
)
"""All of them, in the order of the page."""


def as_markdown() -> str:
    """Return the list of them for docs/configuration.md."""
    return "\n".join(
        f"- `{each}`, {each.kind.name}{f' ({each.default})' if each.default else ''}: {each.meaning}"
        for each in VARIABLES
    )

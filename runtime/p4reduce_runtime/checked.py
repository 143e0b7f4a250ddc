"""Settings from files, checked: an error names the place, and what would be right there.

    @dataclass(frozen=True)
    class Server:
        listen: str
        workers: int = 4
        verbose: bool = False

    read(Server, {"listen": "127.0.0.1:80"}, "server", {"listen": host_port, "workers": whole(1, 64)})

A key of the table is a keyword of the class (or of another callable). It is checked by the check that is given for it,
else by its annotation where that is bool, int, float or str. A check takes the place, like `server.listen` or
`ports[0]`, and the value as the file's parser made it; it returns the value to use, or raises ConfigError.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

T = TypeVar("T")
Check = Callable[[str, object], T]

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE)
_PORT_DIGITS = re.compile(r"[0-9]{1,5}")
_MAX_IP_PORT = 65535
_LARGEST_NUMBER = 1 << 1000
"""Well within what a float can hold, and what Python writes as decimal digits."""


class ConfigError(ValueError):
    """The configuration cannot be used; the message names the key."""


def read_file(path: str | os.PathLike[str], what: str, parse: Callable[[str], T]) -> T:
    """Return parse(text) of a file; errors name it. `what` it is called if it cannot be read. Raises ConfigError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {what} {path}: {error}") from None
    try:
        return parse(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_toml(text: str) -> Any:
    """Return what TOML text holds. Raises ConfigError, also where it is nested too deeply or a number is too large."""
    return _parsed("TOML", tomllib.loads, text)


def parse_json(text: str) -> Any:
    """Return what JSON text holds. Raises ConfigError, also where it is nested too deeply or a number is too large."""
    return _parsed("JSON", json.loads, text)


def _parsed(language: str, loads: Callable[[str], Any], text: str) -> Any:
    try:
        document = loads(text)
    except RecursionError:
        raise ConfigError(f"not valid {language}: it is nested too deeply") from None
    except ValueError as error:  # the parsers' own errors, and numbers of thousands of digits
        raise ConfigError(f"not valid {language}: {error}") from None
    values = [document]
    while values:
        value = values.pop()
        if isinstance(value, dict):
            values += value.values()
        elif isinstance(value, list):
            values += value
        elif isinstance(value, int) and abs(value) > _LARGEST_NUMBER:
            raise ConfigError(f"a number is too large: it has {value.bit_length()} bits")
    return document


def read(cls: Callable[..., T], table: object, where: str = "", checks: Mapping[str, Check[Any]] | None = None) -> T:
    """Make a `cls` of a table. `where` is the table's place, "" for a whole file. Raises ConfigError."""
    return cls(**keywords(cls, table, where, checks))


def keywords(
    cls: Callable[..., Any], table: object, where: str = "", checks: Mapping[str, Check[Any]] | None = None
) -> dict[str, Any]:
    """Return the checked keyword arguments for `cls` that a table gives. Raises ConfigError.

    All of `cls` without a default have to be given, and nothing that it does not take.
    """
    given = mapping(where, table)
    known = inspect.signature(cls).parameters
    for key in given:
        if key not in known:
            whose = f" of {where}" if where else ""
            raise ConfigError(f"unknown key {_inside(where, key)}; the keys{whose} are {', '.join(known) or 'none'}")
    for name, parameter in known.items():
        if parameter.default is parameter.empty and name not in given:
            raise ConfigError(f"{_inside(where, name)} is missing")
    types = get_type_hints(cls.__init__ if inspect.isclass(cls) else cls)
    by_type = {name: _BY_TYPE[hint] for name, hint in types.items() if hint in _BY_TYPE}
    chosen = {**by_type, **(checks or {})}
    return {key: chosen.get(key, anything)(_inside(where, key), value) for key, value in given.items()}


def table_of(cls: Callable[..., T], checks: Mapping[str, Check[Any]] | None = None) -> Check[T]:
    """Check for a table inside another one, of which `read` makes a `cls`."""
    return lambda where, value: read(cls, value, where, checks)


def list_of(check: Check[T], what: str = "") -> Check[tuple[T, ...]]:
    """Check for a list whose items pass `check`; `what` they are called, like "port numbers"."""

    def items(where: str, value: object) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise ConfigError(f"{where} must be a list{what and f' of {what}'}, not {value!r}")
        return tuple(check(f"{where}[{index}]", item) for index, item in enumerate(value))

    return items


def mapping(where: str, value: object) -> dict[str, object]:
    """Check for a table with any keys."""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where or 'the file'} must be a table of keys and values, not {value!r}")
    return dict(value)


def anything(where: str, value: object) -> object:
    """Check for whatever there is."""
    return value


def text(where: str, value: object) -> str:
    """Check for a string with something in it."""
    if not isinstance(value, str):
        raise ConfigError(f"{where} must be a string, not {value!r}")
    if not value:
        raise ConfigError(f"{where} must not be empty")
    return value


def flag(where: str, value: object) -> bool:
    """Check for true or false."""
    if not isinstance(value, bool):
        raise ConfigError(f"{where} must be true or false, not {value!r}")
    return value


def whole(low: int | None = None, high: int | None = None) -> Check[int]:
    """Check for a whole number in low ... high; None is no limit."""

    def check(where: str, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{where} must be a whole number, not {value!r}")
        _in_range(where, value, low, high)
        return value

    return check


def number(low: float | None = None, high: float | None = None) -> Check[float]:
    """Check for a number in low ... high; None is no limit. Whole numbers become floats; NaN is refused."""

    def check(where: str, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise ConfigError(f"{where} must be a number, not {value!r}")
        _in_range(where, value, low, high)
        return float(value)

    return check


def seconds(where: str, value: object) -> float:
    """Check for a time of more than 0 s."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{where} must be a number of seconds, not {value!r}")
    if not 0 < value < float("inf"):
        raise ConfigError(f"{where} must be more than 0 seconds, not {value}")
    return float(value)


def host_port(where: str, value: object) -> str:
    """Check for an address like 127.0.0.1:9600."""
    address = text(where, value)
    if not is_host_port(address):
        raise ConfigError(f"{where} must be HOST:PORT like 127.0.0.1:9600, not {address!r}")
    return address


def is_host_port(address: str) -> bool:
    """Return whether this is HOST:PORT with a port of 0 ... 65535."""
    host, _, port = address.rpartition(":")
    return bool(host) and bool(_PORT_DIGITS.fullmatch(port)) and int(port) <= _MAX_IP_PORT


def mac(where: str, value: object) -> str:
    """Check for the MAC address of one host; it becomes lower case."""
    address = text(where, value)
    if not _MAC.fullmatch(address):
        raise ConfigError(f"{where} must be a MAC address like 02:00:00:00:00:01, not {address!r}")
    if int(address[:2], 16) & 1:
        raise ConfigError(f"{where} must be the address of one host, not the group address {address}")
    return address.lower()


def _inside(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _in_range(where: str, value: float, low: float | None, high: float | None) -> None:
    if (low is None or low <= value) and (high is None or value <= high):
        return
    if low is None or high is None:
        raise ConfigError(f"{where} must be at {f'least {low}' if high is None else f'most {high}'}, not {value}")
    raise ConfigError(f"{where} must be between {low} and {high}, not {value}")


_BY_TYPE: dict[Any, Check[Any]] = {bool: flag, int: whole(), float: number(), str: text}

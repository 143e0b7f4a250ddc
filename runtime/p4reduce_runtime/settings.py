"""Settings and saved state from files, validated by msgspec; an error names the file and the key.

    class Server(Settings, frozen=True):
        listen: HostPort
        workers: Annotated[int, Meta(ge=1, le=64)] = 4

    read_file(path, "the configuration", lambda text: convert(parse_toml(text), Server))

The keys of a table are the fields of its class; an unknown key is an error. Values are limited by their annotations.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

T = TypeVar("T")

Name = Annotated[str, Meta(min_length=1)]
Seconds = Annotated[float, Meta(gt=0, le=1e9)]

_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.IGNORECASE)
_PORT_DIGITS = re.compile(r"[0-9]{1,5}")
_MAX_IP_PORT = 65535
_ERROR = re.compile(r"(?P<message>.*?)(?: - at `(?P<path>[^`]*)`)?", re.DOTALL)


class ConfigError(ValueError):
    """The configuration cannot be used; the message names the key."""


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of the classes that tables of files are converted to."""


class ParsedText(str):
    """Base of strings that have to have a form: the constructor takes any text and raises ValueError."""


class HostPort(ParsedText):
    """An address like 127.0.0.1:9600."""

    def __new__(cls, text: str) -> HostPort:
        host, _, port = text.rpartition(":")
        if not host or not _PORT_DIGITS.fullmatch(port) or int(port) > _MAX_IP_PORT:
            raise ValueError(f"must be HOST:PORT like 127.0.0.1:9600, not {text!r}")
        return super().__new__(cls, text)


class MacAddress(ParsedText):
    """The MAC address of one host, in lower case."""

    def __new__(cls, text: str) -> MacAddress:
        if not _MAC.fullmatch(text):
            raise ValueError(f"must be a MAC address like 02:00:00:00:00:01, not {text!r}")
        if int(text[:2], 16) & 1:
            raise ValueError(f"must be the address of one host, not the group address {text}")
        return super().__new__(cls, text.lower())


def host_port(place: str, text: str) -> HostPort:
    """Return `text` as an address. Raises ConfigError that names `place`."""
    try:
        return HostPort(text)
    except ValueError as error:
        raise ConfigError(f"{place} {error}") from None


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


def parse_toml(text: str) -> dict[str, Any]:
    """Return what TOML text holds. Raises ConfigError."""
    return _parsed("TOML", tomllib.loads, text)


def parse_json(text: str) -> Any:
    """Return what JSON text holds. Raises ConfigError."""
    return _parsed("JSON", msgspec.json.decode, text)


def _parsed(language: str, loads: Callable[[str], T], text: str) -> T:
    try:
        return loads(text)
    except RecursionError:
        raise ConfigError(f"not valid {language}: it is nested too deeply") from None
    except (ValueError, msgspec.DecodeError) as error:  # also numbers of thousands of digits
        raise ConfigError(f"not valid {language}: {error}") from None


def convert(value: object, kind: type[T], place: str = "") -> T:
    """Return parsed TOML or JSON as a `kind`. `place` is the value's key, "" for a whole file. Raises ConfigError."""
    try:
        return msgspec.convert(value, kind, dec_hook=_parse_text)
    except msgspec.ValidationError as error:
        found = _ERROR.fullmatch(str(error))
        assert found is not None
        where = (place + (found["path"] or "$")[1:]).lstrip(".") or "the file"
        raise ConfigError(f"{where}: {found['message']}") from None


def _parse_text(kind: type[Any], value: object) -> Any:
    if not issubclass(kind, ParsedText):
        raise NotImplementedError
    if not isinstance(value, str):
        raise ValueError(f"expected a string, not {value!r}")
    return kind(value)


def toml_table(header: str, **values: object) -> list[str]:
    """Return a TOML table, by lines: booleans, numbers, lists of numbers, and everything else as a string."""
    plain = {
        key: value if isinstance(value, bool | int | float | list) else str(value) for key, value in values.items()
    }
    return [
        header,
        *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in plain.items()),  # JSON's are TOML's
        "",
    ]

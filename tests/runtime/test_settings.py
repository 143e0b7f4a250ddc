"""Settings from files: what is made of them, and that errors name the file and the key."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Meta

from p4reduce_runtime import settings
from p4reduce_runtime.settings import ConfigError, HostPort, MacAddress, Name, Seconds, Settings, convert


class Link(Settings, frozen=True):
    to: Name
    delay_ms: float = 0.0


class Server(Settings, frozen=True):
    listen: HostPort
    workers: Annotated[int, Meta(ge=1, le=64)] = 4
    verbose: bool = False
    limit_s: Seconds = 1.0
    mac: MacAddress | None = None
    links: tuple[Link, ...] = ()

    def __post_init__(self) -> None:
        if self.verbose and self.workers == 1:
            raise ConfigError("verbose needs two workers")


LISTEN = {"listen": "127.0.0.1:80"}


def test_omitted_keys_have_the_defaults_of_the_class() -> None:
    assert convert(LISTEN, Server) == Server(HostPort("127.0.0.1:80"))
    table = {**LISTEN, "verbose": True, "mac": "02:00:00:00:00:0A", "links": [{"to": "a", "delay_ms": 3}]}
    made = convert(table, Server)
    assert made == Server(
        HostPort("127.0.0.1:80"), verbose=True, mac=MacAddress("02:00:00:00:00:0a"), links=(Link("a", 3.0),)
    )
    assert isinstance(made.links[0].delay_ms, float)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "server: Object missing required field `listen`"),
        ({**LISTEN, "port": 1}, "server: Object contains unknown field `port`"),
        ([], "server: Expected `object`, got `array`"),
        ({**LISTEN, "verbose": 1}, "server.verbose: Expected `bool`, got `int`"),
        ({**LISTEN, "workers": True}, "server.workers: Expected `int`, got `bool`"),
        ({**LISTEN, "workers": 65}, "server.workers: Expected `int` <= 64"),
        ({**LISTEN, "workers": 1 << 70}, "server.workers: Expected `int` <= 64"),
        ({**LISTEN, "workers": 1, "verbose": True}, "server: verbose needs two workers"),
        ({**LISTEN, "limit_s": math.nan}, "server.limit_s: Expected `float` > 0.0"),
        ({**LISTEN, "limit_s": math.inf}, "server.limit_s: Expected `float` <= 1000000000.0"),
        ({**LISTEN, "limit_s": 1 << 4000}, "server.limit_s: Number out of range"),
        ({**LISTEN, "links": {}}, "server.links: Expected `array`, got `object`"),
        ({**LISTEN, "links": [{"to": "a"}, {}]}, "server.links[1]: Object missing required field `to`"),
        ({**LISTEN, "links": [{"to": ""}]}, "server.links[0].to: Expected `str` of length >= 1"),
        ({"listen": 80}, "server.listen: expected a string, not 80"),
        ({"listen": "h:\u0663"}, "server.listen: must be HOST:PORT like 127.0.0.1:9600, not 'h:\u0663'"),
        (
            {**LISTEN, "mac": "02:00:00:00:00:0g"},
            "server.mac: must be a MAC address like 02:00:00:00:00:01, not '02:00:00:00:00:0g'",
        ),
    ],
)
def test_errors_name_the_path_of_the_key(table: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        convert(table, Server, "server")
    assert str(caught.value) == message


def test_an_error_of_the_whole_file_has_no_path() -> None:
    with pytest.raises(ConfigError, match="^the file: Expected `object`, got `array`$"):
        convert([], Server)
    with pytest.raises(ConfigError, match="^workers: Expected `int`, got `str`$"):
        convert({**LISTEN, "workers": "2"}, Server)


def test_addresses_have_ports_that_exist() -> None:
    assert [settings.host_port("x", value) for value in ("h:0", "[::1]:65535")] == ["h:0", "[::1]:65535"]
    with pytest.raises(ConfigError, match=r"^x must be HOST:PORT like 127\.0\.0\.1:9600, not 'h:65536'$"):
        settings.host_port("x", "h:65536")


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (settings.parse_toml, "x = " + "[" * 20_000, "not valid TOML: it is nested too deeply"),
        (settings.parse_json, "[" * 200_000, "not valid JSON: it is nested too deeply"),
        (settings.parse_toml, "x = " + "9" * 5000, "not valid TOML: "),
        (settings.parse_json, "9" * 5000, "not valid JSON: "),
        (settings.parse_toml, "[x", "not valid TOML: "),
        (settings.parse_json, "{", "not valid JSON: "),
    ],
)
def test_text_that_cannot_be_parsed_is_an_error(parse: Any, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert str(caught.value).startswith(message)


def test_errors_of_a_file_name_it(tmp_path: Path) -> None:
    path = tmp_path / "settings"
    with pytest.raises(ConfigError, match=r"^cannot read the settings .*settings: .*No such file"):
        settings.read_file(path, "the settings", str)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="^cannot read the settings"):
        settings.read_file(path, "the settings", str)
    path.write_text("text")
    assert settings.read_file(path, "the settings", str) == "text"
    with pytest.raises(ConfigError) as caught:
        settings.read_file(path, "the settings", lambda text: convert(text, Link))
    assert str(caught.value) == f"{path}: the file: Expected `object`, got `str`"

"""Tables of files, checked: what is made of them, and that errors name the place and what would be right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from p4reduce_runtime import checked
from p4reduce_runtime.checked import ConfigError, read


@dataclass(frozen=True)
class Link:
    to: str
    delay_ms: float = 0.0


@dataclass(frozen=True)
class Server:
    listen: str
    workers: int = 4
    verbose: bool = False
    extra: object = None
    links: tuple[Link, ...] = ()


class Threshold:
    """Not a dataclass: its settings are its keywords."""

    def __init__(self, bound: float, *, rounds: int = 3) -> None:
        self.settings = (bound, rounds)


CHECKS: dict[str, checked.Check[Any]] = {
    "listen": checked.host_port,
    "workers": checked.whole(1, 64),
    "links": checked.list_of(checked.table_of(Link)),
}
LISTEN = {"listen": "127.0.0.1:80"}


def refusal(table: object, where: str = "server") -> str:
    with pytest.raises(ConfigError) as caught:
        read(Server, table, where, CHECKS)
    return str(caught.value)


def test_what_is_left_out_is_the_classs_own_default() -> None:
    assert read(Server, LISTEN, "server", CHECKS) == Server("127.0.0.1:80")
    table = {**LISTEN, "verbose": True, "extra": [1, {}], "links": [{"to": "a", "delay_ms": 3}]}
    assert read(Server, table, "server", CHECKS) == Server(
        "127.0.0.1:80", verbose=True, extra=[1, {}], links=(Link("a", 3.0),)
    )


def test_any_class_with_keywords_can_be_read_by_its_annotations() -> None:
    made = read(Threshold, {"bound": 2})
    assert made.settings == (2.0, 3) and isinstance(made.settings[0], float)
    with pytest.raises(ConfigError, match=r"^rounds must be a whole number, not 2\.5$"):
        read(Threshold, {"bound": 2, "rounds": 2.5})
    with pytest.raises(ConfigError, match="^bound is missing$"):
        read(Threshold, {})
    with pytest.raises(ConfigError, match="^unknown key form; the keys are bound, rounds$"):
        read(Threshold, {"form": "sum"})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "server.listen is missing"),
        (
            {**LISTEN, "port": 1},
            "unknown key server.port; the keys of server are listen, workers, verbose, extra, links",
        ),
        ([], "server must be a table of keys and values, not []"),
        ({**LISTEN, "verbose": 1}, "server.verbose must be true or false, not 1"),
        ({**LISTEN, "workers": True}, "server.workers must be a whole number, not True"),
        ({**LISTEN, "workers": 65}, "server.workers must be between 1 and 64, not 65"),
        ({**LISTEN, "links": {}}, "server.links must be a list, not {}"),
        ({**LISTEN, "links": [{"to": "a"}, {}]}, "server.links[1].to is missing"),
        ({**LISTEN, "links": [{"to": "", "delay_ms": 1}]}, "server.links[0].to must not be empty"),
        ({**LISTEN, "links": [{"to": "a", "delay_ms": "1"}]}, "server.links[0].delay_ms must be a number, not '1'"),
        ({"listen": "127.0.0.1:\u0663"}, "server.listen must be HOST:PORT like 127.0.0.1:9600, not '127.0.0.1:\u0663'"),
    ],
)
def test_every_error_names_its_place(table: object, message: str) -> None:
    assert refusal(table) == message


def test_a_whole_file_has_no_place() -> None:
    assert refusal([], "") == "the file must be a table of keys and values, not []"
    assert refusal({}, "") == "listen is missing"
    assert refusal({**LISTEN, "port": 1}, "").startswith("unknown key port; the keys are listen, ")


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (checked.whole(low=1), 0, "x must be at least 1, not 0"),
        (checked.whole(high=9), 10, "x must be at most 9, not 10"),
        (checked.number(0.5, 2), 0.25, "x must be between 0.5 and 2, not 0.25"),
        (checked.number(), math.nan, "x must be a number, not nan"),
        (checked.number(), False, "x must be a number, not False"),
        (checked.seconds, math.inf, "x must be more than 0 seconds, not inf"),
        (checked.mac, "02:00:00:00:00:0g", "x must be a MAC address like 02:00:00:00:00:01, not '02:00:00:00:00:0g'"),
        (checked.list_of(checked.flag, "answers"), 1, "x must be a list of answers, not 1"),
    ],
)
def test_values_that_are_refused(check: checked.Check[Any], value: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check("x", value)
    assert str(caught.value) == message


def test_limits_are_allowed_themselves() -> None:
    assert [checked.whole(1, 3)("x", value) for value in (1, 3)] == [1, 3]
    assert [checked.number(0, 99)("x", value) for value in (0, 99)] == [0.0, 99.0]
    assert [checked.host_port("x", value) for value in ("h:0", "[::1]:65535")] == ["h:0", "[::1]:65535"]


def test_errors_of_a_file_name_it(tmp_path: Path) -> None:
    path = tmp_path / "settings"
    with pytest.raises(ConfigError, match=r"^cannot read the settings .*settings: .*No such file"):
        checked.read_file(path, "the settings", str)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="^cannot read the settings"):
        checked.read_file(path, "the settings", str)
    path.write_text("text")
    assert checked.read_file(path, "the settings", str) == "text"
    with pytest.raises(ConfigError) as caught:
        checked.read_file(path, "the settings", lambda text: read(Link, text))
    assert str(caught.value) == f"{path}: the file must be a table of keys and values, not 'text'"

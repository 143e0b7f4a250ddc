"""The client and TLS: servers that it refuses, and why a server refuses it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from p4reduce_controller.p4runtime.client import Client
from p4reduce_runtime.p4runtime.errors import (
    NotPrimaryError,
    P4RuntimeError,
    SwitchUnreachableError,
    SwitchWithoutTlsError,
)
from rigs.certificates import Bench
from rigs.limits import LIMIT_S
from rigs.p4rt import served


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def locked(bench: Bench) -> Iterator[str]:
    """The address of a switch that takes orders over TLS only."""
    with served(security=bench.of("switch")) as switch:
        yield switch.address


def test_a_controller_becomes_primary(bench: Bench, locked: str) -> None:
    with Client(locked, security=bench.of("controller")) as client:
        assert client.is_primary


def test_a_client_without_tls_does_not_connect(locked: str) -> None:
    with pytest.raises(SwitchUnreachableError):
        Client(locked, timeout_s=2.0).connect()


def test_a_switch_without_tls_is_named(bench: Bench) -> None:
    with (
        served() as switch,
        pytest.raises(SwitchWithoutTlsError, match=rf"{switch.address} answers without TLS: start it with --tls-ca"),
    ):
        Client(switch.address, security=bench.of("controller")).connect()


@pytest.mark.fault("a false switch: the controller refuses the connection")
def test_a_controller_refuses_a_server_without_the_role_switch(bench: Bench) -> None:
    """A worker's certificate, at the switch's address, does not pass for a switch."""
    with served(security=bench.of("worker")) as switch, pytest.raises(SwitchUnreachableError):
        Client(switch.address, timeout_s=2.0, security=bench.of("controller")).connect()


def test_the_error_of_a_worker_as_controller_names_the_role(bench: Bench, locked: str) -> None:
    client = Client(locked, timeout_s=LIMIT_S, security=bench.of("worker"))
    with pytest.raises(P4RuntimeError, match="does not name controller.p4reduce") as caught:
        client.connect()
    assert not isinstance(caught.value, NotPrimaryError)

"""Controller, switch, worker and command over TLS, and what is said where one of them has none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from msgspec.structs import replace

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import ControllerUnreachableError, ForbiddenError
from p4reduce_controller.config import Config, SecurityConfig
from p4reduce_controller.service.process import Controller
from p4reduce_runtime.security import Security
from p4reduce_runtime.settings import ConfigError
from rigs.certificates import Bench
from rigs.fake_switch_client import FakeSwitchClient, Running, serving, with_security
from rigs.limits import LIMIT_S


@pytest.fixture
def locked(bench: Bench, config: Config) -> Iterator[Running]:
    with serving(with_security(config, bench.of("controller"))) as running:
        yield running


def unreachable(address: str, security: Security | None = None) -> str:
    """Connect to a controller that cannot be reached; return the message of the error."""
    with JobClient(address, security=security) as client, pytest.raises(ControllerUnreachableError) as caught:
        client.list_jobs()
    return str(caught.value)


@pytest.mark.fault("the job service without a worker's certificate: refused")
def test_only_certificates_with_the_role_worker_are_served(bench: Bench, locked: Running, tmp_path: Path) -> None:
    with JobClient(locked.address, security=bench.of("worker")) as client:
        client.create_job("train", 1)
        assert [job.name for job in client.list_jobs().jobs] == ["train"]
    assert "closed the connection: does the controller use TLS" in unreachable(locked.address)
    told = unreachable(locked.address, Bench(tmp_path / "other").of("worker"))
    assert re.search(r"no TLS connection to .* of the authority in .*other/ca\.pem", told), told
    with (
        JobClient(locked.address, security=bench.of("switch")) as client,
        pytest.raises(ForbiddenError, match="certificate of switch names none of controller.p4reduce, worker.p4reduce"),
    ):
        client.list_jobs()
    with JobClient(locked.address, security=bench.of("switch")) as client:
        ended = client.watch(1, print)
        ended._thread.join(LIMIT_S)
        assert not ended._thread.is_alive(), "nor is a switch told anything by a watch"
        ended.close()


@pytest.mark.fault("a false controller: workers refuse the connection")
def test_a_server_without_a_controllers_certificate_is_refused(bench: Bench, config: Config) -> None:
    with serving(with_security(config, bench.of("worker"))) as running:
        assert "no TLS connection" in unreachable(running.address, bench.of("worker"))


def test_tls_to_a_controller_without_it_is_an_error(bench: Bench, running: Running) -> None:
    told = unreachable(running.address, bench.of("worker"))
    assert re.search("no TLS connection to .*: has the controller one", told), told


def test_a_name_that_does_not_resolve_is_no_matter_of_tls(bench: Bench) -> None:
    no_name = 64 * "x"  # for which no name server is asked
    told = unreachable(f"{no_name}:9600", bench.of("worker"))
    assert re.search("the name of the controller .* does not resolve", told), told


@pytest.mark.fault("listening beyond loopback without TLS: refused, unless `--insecure`")
def test_listening_beyond_loopback_without_tls_needs_insecure(config: Config) -> None:
    opened = replace(config, controller=replace(config.controller, listen="0.0.0.0:0", metrics="0.0.0.0:0"))
    switch = FakeSwitchClient()
    with pytest.raises(ConfigError, match=r"reaches 0\.0\.0\.0:0 .*under \[security\]"), serving(opened, switch):
        pass
    assert switch.connections == 0
    with serving(replace(opened, security=SecurityConfig(insecure=True))):
        pass


@pytest.mark.fault(
    "a worker or command without the TLS variables, its controller beyond loopback: refused before a channel is "
    "opened: no token is sent in plain text, unless `P4REDUCE_INSECURE=1`"
)
def test_no_channel_without_tls_is_opened_to_a_controller_beyond_loopback(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled: list[tuple[str, bool]] = []

    def dial(address: str, security: Security | None, **options: object) -> grpc.Channel:
        dialled.append((address, security is not None))
        return grpc.insecure_channel("127.0.0.1:1")

    monkeypatch.setattr("p4reduce_contracts.jobs.client.dial", dial)
    beyond = "10.9.8.7:9600"
    with pytest.raises(ConfigError, match=r"the controller at 10\.9\.8\.7:9600 is beyond loopback"):
        JobClient(beyond, token="a token")
    assert dialled == []
    JobClient(beyond, security=bench.of("worker")).close()
    JobClient(beyond, insecure=True).close()
    monkeypatch.setenv("P4REDUCE_INSECURE", "1")
    JobClient(beyond).close()
    assert dialled == [(beyond, True), (beyond, False), (beyond, False)]


def test_a_remote_switch_without_tls_is_refused(bench: Bench, config: Config) -> None:
    distant = replace(config, switches=(replace(config.switches[0], p4runtime="10.9.8.7:9559"),))
    tls = with_security(config, bench.of("controller")).security
    for settings in (SecurityConfig(), replace(tls, plain_p4runtime=True)):
        with pytest.raises(ConfigError, match=r"the switch at 10\.9\.8\.7:9559 would be written to without TLS"):
            Controller(replace(distant, security=settings))
    for settings in (tls, SecurityConfig(insecure=True)):
        Controller(replace(distant, security=settings))

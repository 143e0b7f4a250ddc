"""Controller, switch, worker and command over TLS, and what is said where one of them has none."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
from msgspec.structs import replace

import p4reduce
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import ControllerUnreachableError, ForbiddenError
from p4reduce_controller.config import Config, SecurityConfig
from p4reduce_controller.service.process import Controller
from p4reduce_runtime.security import Security
from p4reduce_runtime.settings import ConfigError
from rigs.certificates import Bench
from rigs.fake_switch_client import FakeSwitchClient, Running, serving
from rigs.limits import LIMIT_S
from rigs.system import COMMAND, Process


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("certs"))


@pytest.fixture
def locked(bench: Bench, config: Config) -> Iterator[Running]:
    """A controller that serves over TLS only."""
    files = bench.of("controller")
    settings = SecurityConfig(str(files.ca), str(files.certificate), str(files.key))
    with serving(replace(config, security=settings)) as running:
        yield running


@pytest.mark.fault("the job service without a worker's certificate: refused")
def test_only_certificates_with_the_role_worker_are_served(bench: Bench, locked: Running, tmp_path: Path) -> None:
    with JobClient(locked.address, security=bench.of("worker")) as client:
        client.create_job("train", 1)
        assert [job.name for job in client.list_jobs().jobs] == ["train"]
    with (
        JobClient(locked.address) as client,
        pytest.raises(ControllerUnreachableError, match="closed the connection: does the controller use TLS"),
    ):
        client.list_jobs()
    other = Bench(tmp_path / "other").of("worker")
    with (
        JobClient(locked.address, security=other) as client,
        pytest.raises(ControllerUnreachableError, match=r"no TLS connection to .* of the authority in .*other/ca\.pem"),
    ):
        client.list_jobs()
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
    files = bench.of("worker")
    settings = SecurityConfig(str(files.ca), str(files.certificate), str(files.key))
    with (
        serving(replace(config, security=settings)) as running,
        JobClient(running.address, security=bench.of("worker")) as client,
        pytest.raises(ControllerUnreachableError, match="no TLS connection"),
    ):
        client.list_jobs()


def test_tls_to_a_controller_without_it_is_an_error(bench: Bench, running: Running) -> None:
    with (
        JobClient(running.address, security=bench.of("worker")) as client,
        pytest.raises(ControllerUnreachableError, match="no TLS connection to .*: has the controller one"),
    ):
        client.list_jobs()


def test_a_name_that_does_not_resolve_is_no_matter_of_tls(bench: Bench) -> None:
    no_name = 64 * "x"  # for which no name server is asked
    with (
        JobClient(f"{no_name}:9600", security=bench.of("worker")) as client,
        pytest.raises(ControllerUnreachableError, match="the name of the controller .* does not resolve"),
    ):
        client.list_jobs()


@pytest.mark.fault("listening beyond loopback without TLS: refused, unless `--insecure`")
def test_listening_beyond_loopback_without_tls_needs_insecure(config: Config) -> None:
    opened = replace(config, controller=replace(config.controller, listen="0.0.0.0:0"))
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
    files = bench.of("controller")
    tls = SecurityConfig(str(files.ca), str(files.certificate), str(files.key))
    for settings in (SecurityConfig(), replace(tls, plain_p4runtime=True)):
        with pytest.raises(ConfigError, match=r"the switch at 10\.9\.8\.7:9559 would be written to without TLS"):
            Controller(replace(distant, security=settings))
    for settings in (tls, SecurityConfig(insecure=True)):
        Controller(replace(distant, security=settings))


@pytest.mark.processes
def test_switch_controller_and_workers_over_tls(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    switch = Process(
        tmp_path / "switch.log",
        *("switch", "run", "--listen", "127.0.0.1:0", "--p4runtime", "127.0.0.1:0", *bench.switch_options()),
    )
    settings = tmp_path / "p4reduce.toml"
    settings.write_text(
        f"[switch]\npipeline = 'small'\np4runtime = '{switch.address('P4Runtime')}'\n"
        f"udp_port = {switch.address('UDP').rpartition(':')[2]}\n"
        f"[controller]\nlisten = '127.0.0.1:0'\nstate_dir = '{tmp_path / 'state'}'\n{bench.toml('controller')}"
    )
    try:
        controller = Process(tmp_path / "controller.log", "controller", "run", "--config", str(settings))
    except BaseException:
        switch.end(signal.SIGKILL)
        raise
    try:
        address = controller.address("jobs on")
        for name, value in bench.environment("worker").items():
            monkeypatch.setenv(name, value)
        made = subprocess.run(
            [sys.executable, *COMMAND, "--controller", address, "job", "create", "train", "--world-size", "1"],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert made.returncode == 0, made.stderr
        (member,) = re.findall(r"members' token, to join it: (\S+)", made.stdout)
        monkeypatch.setenv("P4REDUCE_TOKEN", member)
        with p4reduce.join("train", rank=0, world_size=1, controller=address) as comm:
            assert comm.all_reduce(np.arange(5, dtype=np.int32)).tolist() == [0, 1, 2, 3, 4]
        for name in bench.environment("worker"):
            monkeypatch.delenv(name)
        monkeypatch.delenv("P4REDUCE_TOKEN")
        files = bench.of("worker")
        with p4reduce.join("train", rank=0, world_size=1, controller=address, security=files, token=member) as comm:
            comm.barrier()
    finally:
        for process in (controller, switch):
            process.end(signal.SIGKILL)

"""The command line of p4reduce-simple-switch: what each of BMv2's options becomes."""

from __future__ import annotations

import logging
import logging.handlers
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4.v1 import p4runtime_pb2_grpc
from p4reduce_switch import run
from p4reduce_switch.bmv2 import cli
from p4reduce_switch.p4runtime import Server
from p4reduce_switch.program import QueueSetting, QueueSettings, TargetOptions
from p4reduce_switch.run import SwitchOptions
from p4reduce_switch.switch import Switch
from rigs.certificates import Bench
from rigs.limits import LIMIT_S
from rigs.p4rt import Raw, code_of

Run = Callable[..., SwitchOptions]


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """How the logs were configured."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(logging, "basicConfig", lambda **options: found.update(options))
    return found


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch, logged: dict[str, Any]) -> Run:
    """Return the options with which the switch is run."""
    taken: list[SwitchOptions] = []
    monkeypatch.setattr(run, "run_switch", lambda options, ready: taken.append(options))

    def parse(*words: str) -> SwitchOptions:
        cli.main(words)
        return taken.pop()

    return parse


def test_without_options_bmv2_s_defaults_hold(parsed: Run) -> None:
    options = parsed("--no-p4")
    assert (options.device_id, options.cpu_port, options.target) == (0, None, TargetOptions(drop_port=511))
    assert (options.program, options.interfaces, options.listen) == (None, (), None)
    assert options.p4runtime == "127.0.0.1:9559"
    assert options.gso == "off"
    assert options.capture is options.on_log is options.credentials is None


def test_the_line_of_a_mininet_script(
    parsed: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    line = f"-i 1@s1-eth1 -i 2@s1-eth2 --pcap {tmp_path} --nanolog ipc:///tmp/x.ipc --device-id 3 build/basic.json"
    line += " --log-console --thrift-port 9091 -- --grpc-server-addr 0.0.0.0:50052 --cpu-port 255 --drop-port 510"
    options = parsed(*line.split())
    assert options.interfaces == ("1@s1-eth1", "2@s1-eth2")
    assert (options.device_id, options.program, options.p4runtime) == (3, Path("build/basic.json"), "0.0.0.0:50052")
    assert (options.cpu_port, options.target.drop_port) == (255, 510)
    assert options.insecure, "an address that is named is served as BMv2 serves it"
    assert options.capture is not None
    assert options.capture.folder == tmp_path
    assert options.on_log is not None
    with caplog.at_level(logging.INFO):
        options.on_log("b is 7")
    assert [(record.name, record.getMessage()) for record in caplog.records] == [("p4", "b is 7")]
    warnings = capsys.readouterr().err
    assert warnings.count("--thrift-port has no effect") == 1
    assert warnings.count("--nanolog has no effect") == 1


def test_rates_and_depths_are_for_all_queues_a_port_s_or_one(parsed: Run) -> None:
    line = "--no-p4 -- --priority-queues 8 --queue-rate 1000 --queue-rate 0@3 --queue-depth 16@3.7"
    options = parsed(*line.split())
    rates = (QueueSetting(1000), QueueSetting(0, 3))
    assert options.queues == QueueSettings(8, rates, (QueueSetting(16, 3, 7),))
    assert options.target.queues, "every program has queues"
    assert not parsed("--no-p4", "--", "--priority-queues", "8").target.queues


@pytest.mark.parametrize("words", [("--pcap", "--no-p4"), ("--pcap=.", "--no-p4"), ("--no-p4", "--pcap")])
def test_the_folder_of_pcap_files_is_the_current_one_by_default(parsed: Run, words: tuple[str, ...]) -> None:
    options = parsed(*words)
    assert options.capture is not None
    assert options.capture.folder == Path()


def test_a_log_file_has_bmv2_s_name_and_is_rotated(parsed: Run, tmp_path: Path, logged: dict[str, Any]) -> None:
    line = f"--no-p4 --log-file {tmp_path}/ss-log --log-flush --log-file-max-size 500 --log-file-max-files 1 -L warn"
    parsed(*line.split())
    (handler,) = logged["handlers"]
    handler.close()
    assert isinstance(handler, logging.handlers.RotatingFileHandler)
    assert (handler.baseFilename, handler.maxBytes, handler.backupCount) == (f"{tmp_path}/ss-log.txt", 500, 1)
    assert logged["level"] == "WARNING"


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("", 2, "name the JSON"),
        ("--no-p4 --log-fiel x", 2, "'--log-file'"),
        ("--no-p4 -- --grpc-server-adr x:1", 2, "'--grpc-server-addr'"),
        ("--no-p4 --cpu-port 3", 2, "--cpu-port stands after --"),
        ("--no-p4 -- --log-console", 2, "--log-console stands before --"),
        ("--no-p4 -- --cpu-port 0", 2, "1<=x<=511"),
        ("--no-p4 -- --grpc-server-addr 50051", 2, "HOST:PORT"),
        ("--no-p4 --notifications-addr ipc:///tmp/x", 2, "--notifications-addr is not supported"),
        ("--no-p4 --debugger", 2, "--debugger is not supported"),
        ("--no-p4 -- --dp-grpc-server-addr x:1", 2, "--dp-grpc-server-addr is not supported"),
        ("--no-p4 -- --priority-queues 9", 2, "1<=x<=8"),
        ("--no-p4 -- --queue-rate 100@512", 2, "100@3.7"),
        ("--no-p4 -- --queue-depth 100@3.8", 2, "100@3.7"),
        ("--no-p4 -- --queue-depth 100@3.1", 2, "no queue 3.1: a port has 1 (--priority-queues)"),
        ("--no-p4 -- --priority-queues 7 --queue-rate 100@3.7", 2, "no queue 3.7: a port has 7"),
        ("--no-p4 --pcap=/no/such/folder", 2, "/no/such/folder"),
        ("--no-p4 --log-file-max-files 0", 2, "x>=1"),  # Python's handler would keep one file without a limit
        ("--no-p4 --log-console --log-file x", 2, "exclusive"),
        ("--no-p4 --log-file /no/such/folder/x", 1, "/no/such/folder/x.txt"),
        ("--no-p4 -- --grpc-server-ssl", 2, "--grpc-server-cert and --grpc-server-key"),
        ("--no-p4 -- --grpc-server-cert c.pem", 2, "not --grpc-server-ssl"),
        ("--no-p4 -- --grpc-server-ssl --grpc-server-cert /no/c --grpc-server-key /no/k", 1, "cannot read /no/k"),
    ],
)
def test_a_wrong_line_gets_an_error_that_says_what_to_do(
    parsed: Run, capsys: pytest.CaptureFixture[str], line: str, status: int, message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(*line.split())
    assert ended.value.code == status
    assert message in capsys.readouterr().err


def check_that_clients_need_no_role_of_ours(bench: Bench, credentials: grpc.ServerCredentials, address: str) -> None:
    switch = Switch()
    server = Server(switch, address, credentials=credentials)
    server.start()
    client_credentials = grpc.ssl_channel_credentials(bench.of("switch").ca.read_bytes())
    options = [("grpc.ssl_target_name_override", "switch.p4reduce")]
    with grpc.secure_channel(address, client_credentials, options) as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        assert stub.Capabilities(p4r.CapabilitiesRequest(), timeout=LIMIT_S).p4runtime_api_version == "1.3.0"
    with Raw(address, device_id=0) as without_tls:
        assert code_of(without_tls.arbitrate) == "UNAVAILABLE"
    server.stop()
    switch.close()


@pytest.mark.parametrize("content", [None, "{}"])
def test_the_error_names_a_program_that_cannot_be_loaded(
    tmp_path: Path, content: str | None, logged: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SystemExit) as ended:
        cli.main([str(path), "--", "--grpc-server-addr", f"unix:{tmp_path}/p"])
    assert ended.value.code == 1
    assert str(path) in capsys.readouterr().err


def test_tls_files_that_grpc_refuses_are_named(parsed: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    files, other = bench.of("switch"), bench.of("worker")
    line = "--no-p4 -- --grpc-server-ssl --grpc-server-cert {} --grpc-server-key {} --grpc-server-cacert {}"
    credentials = parsed(*line.format(files.certificate, files.key, files.ca).split()).credentials
    assert credentials is not None
    check_that_clients_need_no_role_of_ours(bench, credentials, f"unix:{tmp_path}/p4runtime")
    for certificate, key, authority, named in (
        (files.key, files.key, files.ca, files.key),
        (files.certificate, other.key, files.ca, other.key),
        (files.certificate, files.key, files.key, files.key),
    ):
        with pytest.raises(SystemExit) as ended:
            parsed(*line.format(certificate, key, authority).split())
        assert ended.value.code == 1
        assert str(named) in capsys.readouterr().err


def test_an_interrupt_while_the_switch_starts_ends_it_without_a_traceback(
    parsed: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run_switch", interrupted)
    with pytest.raises(SystemExit) as ended:
        parsed("--no-p4")
    assert ended.value.code == 130


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("--help", "--log-console"),
        ("-- --help", "--drop-port"),
        ("-v", "p4reduce "),
        ("--json-version", "2.24\n"),
        ("--log-console --json-version", "2.24\n"),
    ],
)
def test_help_and_version_start_no_switch(
    parsed: Run, capsys: pytest.CaptureFixture[str], line: str, shown: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        parsed(*line.split())
    assert ended.value.code == 0
    assert shown in capsys.readouterr().out

"""The units of examples/deploy/systemd, and what the programs tell systemd; its playbook and its Containerfile."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from p4reduce_contracts.cli import main
from p4reduce_controller.service import process
from p4reduce_runtime import kernels
from p4reduce_runtime.readiness import VARIABLE, notify_ready
from p4reduce_switch import run as switch_run
from rigs.limits import LIMIT_S

ROOT = Path(__file__).parents[2]
FILES = ROOT / "examples/deploy"
UNITS = sorted((FILES / "systemd").glob("*.service"))
WORST_EXPOSURE = 20
"""Tenths of the exposure in `systemd-analyze security`, whose 10 is a service that may do anything."""
NEEDS_SYSTEMD = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@pytest.mark.parametrize("abstract", [False, True])
@pytest.mark.parametrize("command", ["switch", "controller"])
def test_a_service_says_that_it_is_ready_once_it_serves(
    command: str, abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + address if abstract else address)
        systemd.settimeout(0)

        def serve(options: Any, ready: Callable[[Any], None]) -> None:
            with pytest.raises(BlockingIOError):
                systemd.recv(64)
            ready(SimpleNamespace(address="127.0.0.1:9600", metrics_address=""))

        monkeypatch.setattr(kernels, "warm_in_background", nullcontext)
        monkeypatch.setattr(switch_run, "run_switch", serve)
        monkeypatch.setattr(process, "run_controller", serve)
        monkeypatch.setenv(VARIABLE, "@" + address if abstract else address)
        done = CliRunner().invoke(main, [command, "run"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        assert systemd.recv(64) == b"READY=1"


def test_a_service_runs_without_systemd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    notify_ready()
    assert not caplog.records
    monkeypatch.setenv(VARIABLE, str(tmp_path / "no socket"))
    with caplog.at_level(logging.WARNING):
        notify_ready()
    assert "was not told of readiness: [Errno 2]" in caplog.text


def test_neither_service_can_read_the_others_key() -> None:
    users = [unit.stem for unit in UNITS]
    assert [line for unit in UNITS for line in unit.read_text().splitlines() if line.startswith("User=")] == [
        f"User={user}" for user in users
    ]
    playbook = (FILES / "ansible.yml").read_text()
    (copied,) = (task for task in playbook.split("- name: ") if task.startswith("Certificates"))
    assert all(user in playbook for user in users) and "'p4reduce-' + item" in copied and "diff: false" in copied


@pytest.mark.deploy
@NEEDS_SYSTEMD
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    assert len(UNITS) == 2
    command = Path(sys.executable).with_name("p4reduce")
    shutil.copytree(FILES / "systemd", tmp_path, dirs_exist_ok=True)
    for unit in UNITS:
        text = unit.read_text()
        assert "ExecStart=/opt/p4reduce/bin/p4reduce " in text
        (tmp_path / unit.name).write_text(text.replace("/opt/p4reduce/bin/p4reduce", str(command)))
    units = [str(tmp_path / unit.name) for unit in UNITS]
    said = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=LIMIT_S)
    assert said.returncode == 0 and said.stderr == "", said.stderr


@pytest.mark.deploy
@NEEDS_SYSTEMD
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_service_may_do_little(unit: Path) -> None:
    _run("systemd-analyze", "security", "--offline=yes", f"--threshold={WORST_EXPOSURE}", str(unit), folder=FILES)


BASE = os.environ.get("P4REDUCE_TEST_IMAGE", "")


def _run(*command: str, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.deploy
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ansible-playbook") is None, reason="not installed: apt install ansible-core")
@pytest.mark.skipif(os.geteuid() != 0, reason="the playbook becomes root")
@pytest.mark.parametrize("with_tls", [False, True])
def test_the_playbook_would_install_a_server_and_a_worker(with_tls: bool, tmp_path: Path) -> None:
    """`--check` changes nothing: pip and the services do not run. Nothing before the certificates depends on TLS."""
    shutil.copytree(FILES, tmp_path, dirs_exist_ok=True)
    (tmp_path / "a.whl").touch()
    (tmp_path / "inventory.ini").write_text(
        "[server]\n127.0.0.1 ansible_connection=local\n[workers]\nhere ansible_connection=local\n"
    )
    given = ["-e", "wheel=a.whl"]
    if with_tls:
        main(["certs", "init", str(tmp_path / "tls")], standalone_mode=False)
        given += ["-e", f"tls={tmp_path / 'tls'}", "-e", "user=root", "--start-at-task", "Certificates"]
    said = _run("ansible-playbook", "--check", "--diff", "-i", "inventory.ini", *given, "ansible.yml", folder=tmp_path)
    assert said.count("unreachable=0    failed=0") == 2
    assert "PRIVATE KEY" not in said
    added = {line[1:].strip() for line in said.splitlines() if line.startswith("+")}
    assert "export PATH=/opt/p4reduce/bin:$PATH P4REDUCE_CONTROLLER=127.0.0.1:9600" in added
    assert ('key = "/etc/p4reduce/controller.key"' in added) == with_tls
    assert ("insecure = true" in added) == ("export P4REDUCE_INSECURE=1" in added) == (not with_tls)


@pytest.mark.deploy
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("podman") is None, reason="not installed: apt install podman")
@pytest.mark.skipif(
    not BASE, reason="P4REDUCE_TEST_IMAGE names no image with Python and pip that podman has or can pull"
)
def test_the_image_runs_as_an_ordinary_user(tmp_path: Path) -> None:
    _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT), folder=ROOT)
    image = "p4reduce-test"
    file = str(FILES / "Containerfile")
    _run("podman", "build", "--build-arg", f"BASE={BASE}", "-t", image, "-f", file, str(tmp_path), folder=ROOT)
    assert "p4reduce, version" in _run("podman", "run", "--rm", "--network", "none", image, "--version", folder=ROOT)
    identity = _run("podman", "run", "--rm", "--network", "none", "--entrypoint", "id", image, "-u", folder=ROOT)
    assert identity == "1000\n"

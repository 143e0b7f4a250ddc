"""The units of examples/deploy/systemd, and what the programs tell systemd."""

from __future__ import annotations

import logging
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

UNITS = sorted((Path(__file__).parents[2] / "examples/deploy/systemd").glob("*.service"))
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
    playbook = (UNITS[0].parents[1] / "ansible.yml").read_text()
    (copied,) = (task for task in playbook.split("- name: ") if task.startswith("Certificates"))
    assert all(user in playbook for user in users) and "'p4reduce-' + item" in copied and "diff: false" in copied


@pytest.mark.deploy
@NEEDS_SYSTEMD
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    assert len(UNITS) == 2
    command = Path(sys.executable).with_name("p4reduce")
    shutil.copytree(UNITS[0].parent, tmp_path, dirs_exist_ok=True)
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
    command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={WORST_EXPOSURE}", str(unit)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    assert said.returncode == 0, said.stdout + said.stderr

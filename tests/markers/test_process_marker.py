"""The marker `processes` is not forgotten."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rigs.limits import LIMIT_S
from rigs.python_path import PYTHONPATH

FILE = """
import socket, subprocess, pytest

def run():
    subprocess.run(["true"], check=True)

@pytest.fixture
def started():
    run()

def test_forgotten():
    run()

def test_forgotten_in_a_fixture(started):
    pass

@pytest.mark.processes
def test_marked(started):
    run()

def test_with_a_socket():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
"""


@pytest.mark.processes
def test_a_test_without_it_that_starts_a_process_fails(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(FILE, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "rigs.process_marker", "-p", "no:cacheprovider", "-rA"]
    # In CI pytest's summary repeats whole messages, which are counted here.
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "BUILD_NUMBER")}
    environment["PYTHONPATH"] = PYTHONPATH
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count("this test has no marker `processes`, but caused subprocess.Popen") == 2
    passed = [line.rpartition("::")[2] for line in done.stdout.splitlines() if line.startswith("PASSED")]
    assert passed == ["test_marked", "test_with_a_socket"]

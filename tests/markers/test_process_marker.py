"""The marker `processes` is not forgotten; the last lines of a run name what was skipped, once for each reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rigs.limits import LIMIT_S
from rigs.python_path import PYTHONPATH
from rigs.skips import lines

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


def skipped(file: str, reason: str) -> pytest.TestReport:
    where = (file, 7, f"Skipped: {reason}")
    return pytest.TestReport(f"{file}::test", (file, 7, "test"), {}, "skipped", where, "setup")


def test_a_reason_has_one_line_whatever_the_file() -> None:
    found = lines([skipped("a.py", "no p4c"), skipped("a.py", "no BMv2"), skipped("b.py", "no BMv2")])
    assert found == ["SKIPPED [2] no BMv2", "SKIPPED [1] no p4c"]

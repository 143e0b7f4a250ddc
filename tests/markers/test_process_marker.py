"""The marker `processes` is not forgotten."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rigs.limits import LIMIT_S
from rigs.process_marker import FILES, TESTS

STARTS = "subprocess.run(['true'], check=True)"
BINDS = "with socket.socket() as one: one.bind(('127.0.0.1', 0))"


@pytest.mark.processes
@pytest.mark.parametrize(("statement", "event"), [(STARTS, "subprocess.Popen"), (BINDS, "socket.bind")])
@pytest.mark.parametrize("in_fixture", [False, True])
def test_a_test_without_it_that_starts_a_process_or_opens_a_socket_fails(
    tmp_path: Path, statement: str, event: str, in_fixture: bool
) -> None:
    of_fixture, of_test = (statement, "pass") if in_fixture else ("pass", statement)
    (tmp_path / "test_one.py").write_text(
        "import socket, subprocess, pytest\n"
        f"@pytest.fixture\ndef started():\n    {of_fixture}\n"
        f"def test_a_test_without_the_marker(started):\n    {of_test}\n"
        f"@pytest.mark.processes\ndef test_a_test_with_the_marker(started):\n    {of_test}\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "rigs.process_marker", "-p", "no:cacheprovider", "-rA"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"this test has no marker `processes`, but caused {event}" in done.stdout
    assert (
        "PASSED test_one.py::test_a_test_with_the_marker" in done.stdout
        and "PASSED test_one.py::test_a_test_without_the_marker" not in done.stdout
    )


@pytest.mark.parametrize("name", FILES)
def test_listed_files_exist(name: str) -> None:
    assert (TESTS / name).exists()

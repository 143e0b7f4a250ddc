"""What a forked child has of its parent's connections, and that gRPC's own handlers of fork() are off."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from p4reduce_runtime import forks
from p4reduce_runtime.metrics_server import MetricsServer
from p4reduce_runtime.security import dial
from p4reduce_runtime.settings import ConfigError
from rigs.limits import LIMIT_S

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("runtime", "contracts", "controller", "softswitch")
FIRST_IMPORT = """
import importlib, os, sys

class Grpc:
    def find_spec(self, name, *rest):
        if name == "grpc":
            raise ImportError(os.environ.get("GRPC_ENABLE_FORK_SUPPORT", "unset"))

sys.meta_path.insert(0, Grpc())
for name in sys.argv[1:]:
    os.environ.pop("GRPC_ENABLE_FORK_SUPPORT", None)
    for loaded in [one for one in sys.modules if one.startswith("p4reduce")]:
        del sys.modules[loaded]
    try:
        importlib.import_module(name)
    except ImportError as error:
        if str(error) != "0":
            print(name, error)
"""
pytestmark = pytest.mark.processes


@contextlib.contextmanager
def forked(first: Callable[[], object]) -> Iterator[None]:
    """Fork a child that does `first`, and then nothing to the end of the block. AssertionError if that fails."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        with contextlib.suppress(BaseException):
            first()
            os.write(writing, b"done")
            signal.pause()
        os._exit(1)
    os.close(writing)
    try:
        with open(reading, "rb") as said:
            assert said.read(4) == b"done"
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_connection_ends_with_its_process_although_a_child_lives(
    family: socket.AddressFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "_peers", set())
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(family) as client:
        port = server.getsockname()[1]
        forks.keep_from_children(f"localhost:{port}")
        client.connect(("127.0.0.1" if family == socket.AF_INET else "::ffff:127.0.0.1", port))
        accepted, _ = server.accept()
        with accepted, forked(lambda: None):
            accepted.settimeout(LIMIT_S)
            client.send(b"parent")
            assert accepted.recv(9) == b"parent"
            client.close()
            assert accepted.recv(1) == b""


def test_the_port_of_metrics_is_free_although_a_child_lives() -> None:
    server = MetricsServer("127.0.0.1:0", lambda: (), insecure=False)
    with forked(lambda: None):
        server.close()
        MetricsServer(server.address, lambda: (), insecure=False).close()


@pytest.mark.fault("a forked child of a rank makes a connection of its own: ConfigError that says to spawn it")
def test_a_child_gets_an_error_instead_of_a_call_without_end() -> None:
    with dial("127.0.0.1:1", None, role="") as channel:
        assert channel is not None

    def refused() -> None:
        with pytest.raises(ConfigError, match='"spawn"'):
            dial("127.0.0.1:1", None, role="")

    with forked(refused):
        pass


def test_fork_handlers_of_grpc_are_off_before_it_is_imported() -> None:
    files = [
        file
        for package in PACKAGES
        for file in (ROOT / package).glob("p4reduce_*/**/*.py")
        if "import grpc" in file.read_text()
    ]
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts[1:]) for file in files]
    assert "p4reduce_runtime.security" in names
    command = [sys.executable, "-c", FIRST_IMPORT, *names]
    assert subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True).stdout == ""

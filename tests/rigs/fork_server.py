"""Python scripts in processes that are forked from one that has imported what takes long.

A new interpreter takes seconds of processor time to import torch with what DDP and FSDP import of it, and one to make
numba ready to compile; a forked one takes none. Each script runs as `__main__` to the end of its interpreter, with its
own arguments, environment and output.

A server is a process that reads a request from its socket, forks, and answers with the child's id and later its status.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

TORCH = (
    "pytest",
    "ready_numba",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.tensor.parallel",
    "torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook",
    "torch.distributed.algorithms.join",
    "p4reduce.pytorch.backend.group",
    "p4reduce.pytorch.ddp",
    "p4reduce.membership.join",
    "p4reduce.testing.udp_switch",
    "p4reduce_lab.system",
)
"""The modules that are imported for trainings."""
PROGRAMS = (
    "ready_numba",
    "p4reduce.communicator",
    "p4reduce.membership.join",
    "p4reduce_contracts.cli",
    "p4reduce_controller.service.process",
    "p4reduce_switch.run",
)
"""The modules that are imported for workers without torch, switches and controllers."""
LIMIT_S = 600.0
"""Seconds as in rigs/limits.py: the server, which runs this file as a script, has no package rigs."""


class Forked:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._answers = b""
        self.pid = self._answer(LIMIT_S)
        self._status: int | None = None

    def wait(self, timeout_s: float) -> int:
        """Return its status, negative if a signal ended it. Raises TimeoutError."""
        if self._status is None:
            self._status = self._answer(max(timeout_s, 0.001))
            self._connection.close()
        return self._status

    def poll(self) -> int | None:
        """Return its status; None if it runs."""
        with suppress(TimeoutError):
            self.wait(0)
        return self._status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it ends at this moment, and its server has not said so yet
                os.kill(self.pid, number)

    def close(self) -> None:
        self.send_signal(signal.SIGKILL)
        self.wait(LIMIT_S)

    def _answer(self, timeout_s: float) -> int:
        self._connection.settimeout(timeout_s)
        while b"\n" not in self._answers:
            received = self._connection.recv(64)
            assert received, "the fork server ended"
            self._answers += received
        line, _, self._answers = self._answers.partition(b"\n")
        return int(line)

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


class ForkServer:
    """Starts scripts; `address` is the path of its socket."""

    def __init__(self, address: Path) -> None:
        self._address = str(address)

    def start(self, log: Path, *command: str, environment: Mapping[str, str], folder: Path | None = None) -> Forked:
        """Run `python *command` with stdout and stderr in `log`, from the folder (default: this process's)."""
        with log.open("wb") as output:
            return self.spawn(output, output, *command, environment=environment, folder=folder)

    def spawn(
        self,
        output: IO[Any],
        errors: IO[Any],
        *command: str,
        environment: Mapping[str, str],
        folder: Path | None = None,
    ) -> Forked:
        """Run `python *command` with these files as its stdout and stderr."""
        sys.audit("rigs.fork_server.spawn")  # for rigs/process_marker.py: the fork itself is the server's
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(LIMIT_S)
        connection.connect(self._address)
        request = {"command": command, "environment": dict(environment), "folder": str(folder or Path.cwd())}
        socket.send_fds(connection, [b"\n"], [output.fileno(), errors.fileno()])
        connection.sendall(json.dumps(request).encode() + b"\n")
        return Forked(connection)

    def launch(
        self,
        logs: Path,
        ranks: int,
        *command: str,
        environment: Mapping[str, str],
        timeout_s: float,
        status: int = 0,
        switch_of: Callable[[int, int], str] = lambda rank, ranks: "",
    ) -> list[str]:
        """Run `python *command` as each rank, with the variables that torchrun sets; return what each rank printed.

        `switch_of(rank, ranks)` is the switch that a rank sends to. AssertionError where a rank ends with another
        status, TimeoutError where one does not end.
        """
        from rigs.ports import own_port  # the server, which runs this file as a script, has no package rigs

        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": own_port(), "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
        deadline = time.monotonic() + timeout_s
        with ExitStack() as stack:
            started = []
            for rank in range(ranks):
                of_rank = {"RANK": rank, "LOCAL_RANK": rank, "P4REDUCE_SWITCH": switch_of(rank, ranks)}
                variables = {key: str(value) for key, value in {**group, **of_rank}.items()}
                log = logs / f"rank-{rank}.log"
                forked = self.start(log, *command, environment={**environment, **variables})
                started.append((stack.enter_context(forked), log))
            for each, log in started:
                ended = each.wait(deadline - time.monotonic())
                assert ended == status, f"status {ended}: {log.read_text()}"
        return [log.read_text() for _, log in started]


@contextmanager
def fork_server(folder: Path, preloaded: Sequence[str]) -> Iterator[ForkServer]:
    """Start a server with these modules, and its socket in the folder; it ends with the block or with this process."""
    address = folder / "fork_server"
    command = [sys.executable, __file__, str(address), *preloaded]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"ready\n", "the fork server did not start"
        try:
            yield ForkServer(address)
        finally:
            process.stdin.close()
            process.wait(LIMIT_S)


@functools.cache
def program_server() -> ForkServer:
    """Return this process's server of PROGRAMS, which is started when it is first needed."""
    stack = ExitStack()
    atexit.register(stack.close)
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="p4reduce-fork-"))
    return stack.enter_context(fork_server(Path(folder), PROGRAMS))


def serve(address: str, preloaded: Sequence[str]) -> dict[str, Any] | None:
    """Fork a child for each request until stdin ends; return the request in the child, None in the server."""
    for name in preloaded:
        __import__(name)
    gc.freeze()  # else the end of each child would visit all that was imported
    children: dict[int, tuple[int, socket.socket]] = {}
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    events = selectors.DefaultSelector()
    events.register(listener, selectors.EVENT_READ)
    events.register(sys.stdin, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        for key, _ in events.select():
            if key.fileobj is sys.stdin:
                for pid, _ in children.values():
                    os.kill(pid, signal.SIGKILL)
                return None
            if key.fileobj is not listener:
                pid, connection = children.pop(key.fd)
                events.unregister(key.fd)
                os.close(key.fd)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                connection.sendall(b"%d\n" % status)
                connection.close()
                continue
            connection, _ = listener.accept()
            _, (output, errors), _, _ = socket.recv_fds(connection, 1, 2)
            request = json.loads(connection.makefile().readline())
            pid = os.fork()
            if pid == 0:
                for descriptor, (_, other) in children.items():
                    os.close(descriptor)
                    other.close()
                for file in (events, listener, connection):
                    file.close()
                return {**request, "output": output, "errors": errors}
            os.close(output)
            os.close(errors)
            connection.sendall(b"%d\n" % pid)
            descriptor = os.pidfd_open(pid)
            children[descriptor] = (pid, connection)
            events.register(descriptor, selectors.EVENT_READ)


def become(request: dict[str, Any]) -> None:
    """Run the script of a request as this interpreter's."""
    inputs = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((inputs, request["output"], request["errors"])):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    if "torch" in sys.modules:
        sys.modules["torch"].distributed.set_debug_level_from_env()
    first, *arguments = request["command"]
    folder = Path.cwd() if first == "-m" else Path(first).parent
    sys.path[:1] = [str(folder), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    if first == "-m":
        sys.argv = arguments
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *arguments]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    request = serve(sys.argv[1], sys.argv[2:])
    if request is not None:
        become(request)

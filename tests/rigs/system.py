"""A switch and a controller as processes, and what tests do with them."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rigs.fork_server import program_server

READY_S = 30.0
COMMAND = ("-m", "p4reduce_contracts")


class Process:
    """`p4reduce ...` in a forked process, up to its first line of output."""

    def __init__(self, log: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        reading, writing = os.pipe()
        self._output = open(reading)  # noqa: SIM115 (`end` closes it)
        with log.open("a") as errors, open(writing, "w") as output:
            variables = {**os.environ, **(environment or {})}
            self.process = program_server().spawn(output, errors, *COMMAND, *arguments, environment=variables)
        readable, _, _ = select.select([self._output], [], [], READY_S)
        self.first_line = self._output.readline() if readable else ""
        if not self.first_line:
            self.end(signal.SIGKILL)
            raise AssertionError(f"{arguments} did not get ready: {log.read_text()}")

    def address(self, before: str) -> str:
        found = re.search(rf"{before} (127(?:\.\d+){{3}}:\d+)", self.first_line)
        assert found, self.first_line
        return found[1]

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        status = self.process.wait(READY_S)
        self._output.close()
        return status


@dataclass
class System:
    """A running switch and controller."""

    folder: Path
    switch: Process
    controller: Process
    udp_port: int | None = None
    """Where workers send their frames; None: to the switch itself."""

    def start_switch(self) -> None:
        """Start the switch again, at the addresses it had."""
        self.switch = start_switch(self.folder, self.switch.address("UDP"), self.switch.address("P4Runtime"))

    def start_controller(self, heartbeat_timeout_s: int = 60, state: str = "state") -> None:
        """Start the controller again, at the address it had."""
        listen = self.controller.address("jobs on")
        self.controller = start_controller(
            self.folder, self.switch, listen, heartbeat_timeout_s, state, udp_port=self.udp_port
        )


def start_switch(folder: Path, listen: str = "127.0.0.1:0", p4runtime: str = "127.0.0.1:0") -> Process:
    return Process(folder / "switch.log", "switch", "run", "--listen", listen, "--p4runtime", p4runtime)


def start_controller(
    folder: Path,
    switch: Process,
    listen: str = "127.0.0.1:0",
    heartbeat_timeout_s: int = 60,
    state: str = "state",
    pipeline: str = "small",
    udp_port: int | None = None,
) -> Process:
    host, _, port = switch.address("UDP").rpartition(":")
    config = folder / "p4reduce.toml"
    config.write_text(
        f"[switch]\npipeline = '{pipeline}'\np4runtime = '{switch.address('P4Runtime')}'\n"
        f"address = '{host}'\nudp_port = {udp_port or port}\n"
        f"[controller]\nlisten = '{listen}'\nstate_dir = '{folder / state}'\n"
        f"heartbeat_interval_s = 0.2\nheartbeat_timeout_s = {heartbeat_timeout_s}\n"
    )
    return Process(folder / "controller.log", "controller", "run", "--config", str(config))


@contextlib.contextmanager
def running_system(folder: Path, pipeline: str = "small") -> Iterator[System]:
    """Start a switch and a controller; end them, and what was started again in their place, with the block."""
    switch = start_switch(folder)
    try:
        running = System(folder, switch, start_controller(folder, switch, pipeline=pipeline))
    except BaseException:
        switch.end(signal.SIGKILL)
        raise
    try:
        yield running
    finally:
        for process in (running.controller, running.switch):
            if process.process.poll() is None:
                process.process.send_signal(signal.SIGCONT)
            process.end(signal.SIGKILL)

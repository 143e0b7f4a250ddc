"""A switch and a controller as processes, and what tests do with them."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from socket import SOCK_DGRAM
from typing import Any, Final, Protocol

import pytest

from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_runtime.underlay import UPLINK_PORT
from rigs.fork_server import program_server
from rigs.limits import LIMIT_S
from rigs.ports import own_address

ROOT = "root"
COMMAND = ("-m", "p4reduce_contracts")


class Addressed(Protocol):
    """A switch that runs."""

    def address(self, before: str) -> str:
        """Return the address behind the word "UDP" or "P4Runtime" of its first line."""


class Process:
    """`p4reduce ...` in a forked process, up to its first line of output."""

    def __init__(self, log: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        reading, writing = os.pipe()
        self._output = open(reading)  # noqa: SIM115 (`end` closes it)
        with log.open("a") as errors, open(writing, "w") as output:
            variables = {**os.environ, **(environment or {})}
            self.process = program_server().spawn(output, errors, *COMMAND, *arguments, environment=variables)
        readable, _, _ = select.select([self._output], [], [], LIMIT_S)
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
        status = self.process.wait(LIMIT_S)
        self._output.close()
        return status


def switch_of(leaves: Sequence[str], rank: int, world_size: int) -> str:
    """Return the leaf that a rank sends to; "" without leaves."""
    return leaves[rank * len(leaves) // world_size] if leaves else ""


def leaves_of(racks: int) -> list[str]:
    """Return the names of the leaves of so many racks: none of one."""
    return [f"leaf{number}" for number in range(1, racks + 1 if racks > 1 else 1)]


@dataclass
class System:
    """A running switch and controller; with racks a switch for each of them, `leaves`, below `switch`.

    Or `beside`: the others that are side by side with `switch`.
    """

    folder: Path
    switch: Process
    controller: Process
    paths: Mapping[str, str]
    """The UDP addresses by which switches are reached, by name."""
    leaves: dict[str, Process] = field(default_factory=dict)
    pipeline: str = "small"
    beside: dict[str, Process] = field(default_factory=dict)
    away: str = ""
    """The switch side by side that was killed and not started again."""

    @property
    def root(self) -> str:
        return ROOT if self.leaves or self.beside else ONLY_SWITCH

    def switch_of(self, rank: int, world_size: int) -> str:
        """Return the switch that a rank sends to, as `join` takes it."""
        return switch_of(list(self.leaves), rank, world_size)

    def kill_switch(self, name: str = ROOT) -> None:
        """SIGKILL a leaf, one of those beside `switch`, or that one."""
        self._process(name).end(signal.SIGKILL)

    def start_switch(self, name: str = ROOT) -> None:
        ended = self._process(name)
        addresses = ended.address("UDP"), ended.address("P4Runtime")
        if name in self.beside:
            self.beside[name] = start_switch(self.folder, *addresses)
        elif name in self.leaves:
            self.leaves[name] = start_switch(self.folder, *addresses, self.paths[ROOT])
        else:
            self.switch = start_switch(self.folder, *addresses)

    def start_controller(self, heartbeat_timeout_s: int = 60) -> None:
        listen = self.controller.address("jobs on")
        options = {"pipeline": self.pipeline, "leaves": self.leaves, "beside": self.beside, "paths": self.paths}
        self.controller = start_controller(
            self.folder, self.switch, listen, heartbeat_timeout_s=heartbeat_timeout_s, **options
        )

    def _process(self, name: str) -> Process:
        return {**self.leaves, **self.beside}.get(name, self.switch)


def start_switch(folder: Path, listen: str = "", p4runtime: str = "", uplink: str = "") -> Process:
    listen, p4runtime = listen or own_address(SOCK_DGRAM), p4runtime or own_address()
    above = ["--uplink", uplink] if uplink else []
    return Process(folder / "switch.log", "switch", "run", "--listen", listen, "--p4runtime", p4runtime, *above)


def start_controller(folder: Path, switch: Process, listen: str = "", **options: Any) -> Process:
    config = folder / "p4reduce.toml"
    config.write_text(configuration(folder, switch, listen or own_address(), **options))
    return Process(folder / "controller.log", "controller", "run", "--config", str(config))


def configuration(
    folder: Path,
    switch: Addressed,
    listen: str,
    heartbeat_timeout_s: int = 60,
    pipeline: str = "small",
    leaves: Mapping[str, Addressed] | None = None,
    paths: Mapping[str, str] | None = None,
    beside: Mapping[str, Addressed] | None = None,
) -> str:
    """Return the controller's configuration; its table [controller] is the last.

    `leaves` are below the switch, others `beside` it. `paths` are the UDP addresses by which switches are reached, by
    name, where they are not their own.
    """
    paths = paths or {}
    tables = [_table(switch, paths.get(ROOT), pipeline, f"name = '{ROOT}'\n" if leaves or beside else "")]
    for name, leaf in (leaves or {}).items():
        above = f"name = '{name}'\nparent = '{ROOT}'\nuplink_port = {UPLINK_PORT}\n"
        tables.append(_table(leaf, paths.get(name), pipeline, above))
    for name, other in (beside or {}).items():
        tables.append(_table(other, paths.get(name), pipeline, f"name = '{name}'\n"))
    return (
        "".join(tables) + f"[controller]\nlisten = '{listen}'\nstate_dir = '{folder / 'state'}'\n"
        f"heartbeat_interval_s = 0.2\nheartbeat_timeout_s = {heartbeat_timeout_s}\nmetrics = '127.0.0.1:0'\n"
    )


def _table(switch: Addressed, path: str | None, pipeline: str, lines: str) -> str:
    host, _, port = (path or switch.address("UDP")).rpartition(":")
    return (
        f"[[switch]]\n{lines}pipeline = '{pipeline}'\np4runtime = '{switch.address('P4Runtime')}'\n"
        f"address = '{host}'\nudp_port = {port}\n"
    )


@contextlib.contextmanager
def running_system(
    folder: Path,
    pipeline: str = "small",
    racks: int = 1,
    path: Callable[[str, str], str] = lambda name, address: address,
    switches: int = 1,
) -> Iterator[System]:
    """Start a switch and a controller; end them, and what was started again in their place, with the block.

    With several `racks`, start a leaf for each too, below that switch; with several `switches`, so many side by side.
    `path` gives the UDP address by which workers and leaves reach the switch of this name and UDP address.
    """
    leaves: dict[str, Process] = {}
    beside: dict[str, Process] = {}
    switch = start_switch(folder)
    try:
        paths = {ROOT: path(ROOT, switch.address("UDP"))}
        for name in leaves_of(racks):
            leaves[name] = start_switch(folder, uplink=paths[ROOT])
            paths[name] = path(name, leaves[name].address("UDP"))
        for name in (f"switch{number}" for number in range(2, switches + 1)):
            beside[name] = start_switch(folder)
            paths[name] = path(name, beside[name].address("UDP"))
        controller = start_controller(folder, switch, pipeline=pipeline, leaves=leaves, paths=paths, beside=beside)
        running = System(folder, switch, controller, paths, leaves, pipeline, beside)
    except BaseException:
        for process in (*leaves.values(), *beside.values(), switch):
            process.end(signal.SIGKILL)
        raise
    try:
        yield running
    finally:
        for process in (running.controller, *running.leaves.values(), *running.beside.values(), running.switch):
            if process.process.poll() is None:
                process.process.send_signal(signal.SIGCONT)
            process.end(signal.SIGKILL)


RACKS: Final = 2
KILLED: Final = {"one_switch": (1, ONLY_SWITCH), "leaf": (RACKS, "leaf2"), "root": (RACKS, ROOT)}
"""Networks, as numbers of racks, and a switch of each."""


def over_networks(fixture: str = "system") -> pytest.MarkDecorator:
    """Run a test over both; the fixture starts as many racks as its parameter says, one switch without a parameter."""
    return pytest.mark.parametrize(fixture, [1, RACKS], indirect=True, ids=["one_switch", "two_racks"])


def racks_of(request: pytest.FixtureRequest) -> int:
    racks: int = getattr(request, "param", 1)
    return racks

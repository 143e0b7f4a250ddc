"""Switches and their controller as child processes: started one after the other, each waited for."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import JobServiceError, SwitchAwayError
from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_lab.addresses import free_address
from p4reduce_lab.processes import P4REDUCE, Child, Children
from p4reduce_lab.udp_relay import PathConditions, UdpRelay
from p4reduce_runtime.addresses import answers
from p4reduce_runtime.security import is_loopback
from p4reduce_runtime.settings import toml_table
from p4reduce_runtime.underlay import UPLINK_PORT

READY_S = 120.0
ROOT = "root"
"""The name of the switch above the racks'."""


@dataclass(frozen=True)
class System:
    """Running switches and their controller."""

    controller: str
    """HOST:PORT of the job service."""
    client: JobClient
    switches: tuple[Child, ...]
    controller_process: Child
    leaves: tuple[str, ...] = ()
    """The switches that ranks send to, where there are several."""

    def check(self) -> None:
        """Raise ProcessError if a switch or the controller has ended."""
        for switch in self.switches:
            switch.check_running()
        self.controller_process.check_running()

    def switch_of(self, rank: int, world_size: int) -> str:
        """Return the switch that a rank sends to, for P4REDUCE_SWITCH: "" where there is only one."""
        return self.leaves[rank * len(self.leaves) // world_size] if self.leaves else ""

    def trunk_bytes(self, job: str) -> tuple[int, int]:
        """Return a job's bytes between the switches, with all headers: what the root and what its leaves received.

        Raises SwitchAwayError where the counters of a switch cannot be read.
        """
        stats = self.client.stats(job)
        if stats.away:
            raise SwitchAwayError("; ".join(each.problem for each in stats.away))
        up = down = 0
        for counted in stats.jobs:
            if counted.switch == ROOT:
                up += counted.contributions.bytes + counted.duplicates.bytes
            down += counted.parent_answers.bytes
        return up, down

    @contextmanager
    def job(self, name: str, world_size: int, slots: int | None = None) -> Iterator[str]:
        """Make a job for the block and yield its name. After an error it stays, for diagnosis."""
        self.client.create_job(name, world_size, slots)
        yield name
        self.client.remove_job(name)


@dataclass(frozen=True)
class EmbeddedSwitch:
    """An embedded switch with UDP peers: how it is started, and its table in the controller's file."""

    name: str
    listen: str = field(default_factory=partial(free_address, socket.SOCK_DGRAM))
    """IPv4 address and UDP port, as HOST:PORT; by default free ones of the loopback interface. So is `p4runtime`."""
    p4runtime: str = field(default_factory=free_address)
    pipeline: str = "default"
    reached_at: str = ""
    """The address and port to which workers send; "": those of `listen`."""
    parent: EmbeddedSwitch | None = None
    within: Sequence[str] = ()
    """The words before its command, to run it in a network namespace."""

    def start(self, children: Children) -> Child:
        """Start the process and wait until it answers. Raises ProcessError if it does not."""
        command = [*self.within, *P4REDUCE, "switch", "run", "--listen", self.listen, "--p4runtime", self.p4runtime]
        command += ["--uplink", self.parent.listen] if self.parent is not None else []
        command += [] if is_loopback(self.p4runtime) else ["--insecure"]
        child = children.start(self.name, command)
        child.wait_ready(partial(answers, self.p4runtime), READY_S)
        return child

    @property
    def table(self) -> list[str]:
        """The lines of the controller's TOML."""
        host, _, udp_port = (self.reached_at or self.listen).rpartition(":")
        above = {} if self.parent is None else {"parent": self.parent.name, "uplink_port": UPLINK_PORT}
        return toml_table(
            "[[switch]]",
            name=self.name,
            p4runtime=self.p4runtime,
            pipeline=self.pipeline,
            address=host,
            udp_port=int(udp_port),
            connect_timeout_s=READY_S,
            **above,
        )


@contextmanager
def running_system(
    children: Children, pipeline: str = "default", racks: int = 1, switches: int = 1, drop_chance: float = 0.0
) -> Iterator[System]:
    """Start embedded switches and a controller on free ports of the loopback interface.

    `pipeline` is a geometry's name or the folder of a compiled program. With several `racks` there is a leaf switch for
    each, and a root above them; several `switches` are side by side. `drop_chance` is that of each frame between
    ranks and a switch to be lost. They run until `children` ends. Raises ProcessError if they do not come up.
    """
    names = [f"switch{number}" for number in range(1, switches + 1)] if switches > 1 else [ONLY_SWITCH]
    above = [EmbeddedSwitch(name, pipeline=pipeline) for name in ([ROOT] if racks > 1 else names)]
    leaves = range(1, racks + 1 if racks > 1 else 1)
    below = [EmbeddedSwitch(f"leaf{number}", pipeline=pipeline, parent=above[0]) for number in leaves]
    with ExitStack() as stack:
        started = [*above, *below]
        if drop_chance:
            started = [
                switch if switch.parent is None and below else stack.enter_context(_behind_loss(switch, drop_chance))
                for switch in started
            ]
        yield stack.enter_context(started_embedded_system(children, started, free_address()))


@contextmanager
def _behind_loss(switch: EmbeddedSwitch, drop_chance: float) -> Iterator[EmbeddedSwitch]:
    """Relay between ranks and a switch for the block, and lose frames; yields the switch as ranks reach it."""
    host, _, port = switch.listen.rpartition(":")
    with UdpRelay((host, int(port)), PathConditions(drop=drop_chance), seed=0) as relay:
        yield replace(switch, reached_at=f"{host}:{relay.address[1]}")


@contextmanager
def started_embedded_system(
    children: Children, switches: Sequence[EmbeddedSwitch], jobs: str, *, insecure: bool = False
) -> Iterator[System]:
    """Start these switches, parents before others, and their controller, which serves jobs at HOST:PORT.

    `insecure`: it serves beyond loopback, without TLS. They run until `children` ends. Raises ProcessError if they do
    not come up.
    """
    processes = [switch.start(children) for switch in switches]
    tables = [line for switch in switches for line in switch.table]
    with started_controller(children, processes, tables, jobs, insecure=insecure) as system:
        yield replace(system, leaves=tuple(switch.name for switch in switches if switch.parent is not None))


@contextmanager
def started_controller(
    children: Children, switches: Sequence[Child], tables: Sequence[str], jobs: str, *, insecure: bool
) -> Iterator[System]:
    """Start a controller of switches that answer, and wait until it serves jobs at HOST:PORT.

    `tables` are the lines of its TOML file about switches and ports. `insecure`: it serves beyond loopback, without
    TLS. All run until `children` ends. Raises ProcessError if it does not come up.
    """
    lines = toml_table("[controller]", listen=jobs, state_dir=new_state_dir(children.logs))
    lines += toml_table("[security]", insecure=insecure)
    path = children.logs / "controller.toml"
    path.write_text("\n".join([*tables, *lines]) + "\n", encoding="utf-8")
    controller = children.start("controller", [*P4REDUCE, "controller", "run", "--config", str(path)])
    with JobClient(jobs, insecure=insecure) as client:
        controller.wait_ready(partial(_serves, client), READY_S)
        yield System(jobs, client, tuple(switches), controller)


def _serves(client: JobClient) -> bool:
    try:
        client.list_switches()
    except JobServiceError:
        return False
    return True


def new_state_dir(logs: Path) -> Path:
    """Return the folder in which a new controller beside these logs keeps its state.

    An earlier controller's state is removed: its switch has ended, and its jobs would collide with new ones.
    """
    folder = logs.resolve() / "controller-state"
    shutil.rmtree(folder, ignore_errors=True)
    return folder

"""Switches and their controller as child processes: started one after the other, each waited for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import SwitchAwayError
from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_lab.addresses import LOOPBACK
from p4reduce_lab.processes import P4REDUCE, Child, Children
from p4reduce_runtime.security import is_loopback
from p4reduce_runtime.settings import toml_table
from p4reduce_runtime.underlay import UPLINK_PORT

READY_S = 120.0
ANY_PORT = f"{LOOPBACK}:0"
"""The system chooses; the line that a program prints when it is ready names the port."""
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
    listen: str
    """IPv4 address and port, as HOST:PORT; of a started one not port 0. So is `p4runtime`."""
    p4runtime: str
    pipeline: str = "default"
    parent: EmbeddedSwitch | None = None
    within: Sequence[str] = ()
    """The words before its command, to run it in a network namespace."""

    def start(self, children: Children) -> tuple[EmbeddedSwitch, Child]:
        """Start the process and wait for it; return this switch with the ports that it has, and its process."""
        command = [*self.within, *P4REDUCE, "switch", "run", "--listen", self.listen, "--p4runtime", self.p4runtime]
        command += ["--uplink", self.parent.listen] if self.parent is not None else []
        command += [] if is_loopback(self.p4runtime) else ["--insecure"]
        child = children.start(self.name, command)
        ready = child.wait_line(r"ready: UDP ([^;,\s]+).*; P4Runtime ([^;]+);", READY_S)
        return replace(self, listen=ready[1], p4runtime=ready[2]), child

    @property
    def table(self) -> list[str]:
        """The lines of the controller's TOML."""
        host, _, udp_port = self.listen.rpartition(":")
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
    children: Children, pipeline: str = "default", racks: int = 1, switches: int = 1
) -> Iterator[System]:
    """Start embedded switches and a controller on free ports of the loopback interface.

    `pipeline` is a geometry's name or the folder of a compiled program. With several `racks` there is a leaf switch for
    each, and a root above them; several `switches` are side by side. They run until `children` ends. Raises
    ProcessError if they do not come up.
    """
    root = EmbeddedSwitch(ROOT if racks > 1 else ONLY_SWITCH, ANY_PORT, ANY_PORT, pipeline)
    beside = [replace(root, name=f"switch{number}") for number in range(1, switches + 1)] if switches > 1 else [root]
    leaves = [
        EmbeddedSwitch(f"leaf{number}", ANY_PORT, ANY_PORT, pipeline, root)
        for number in range(1, racks + 1 if racks > 1 else 1)
    ]
    config = toml_table("[controller]", listen=ANY_PORT, state_dir=new_state_dir(children.logs))
    with started_embedded_system(children, [*beside, *leaves], config) as system:
        yield system


@contextmanager
def started_embedded_system(
    children: Children, switches: Sequence[EmbeddedSwitch], config: Sequence[str], *, insecure: bool = False
) -> Iterator[System]:
    """Start these switches, parents before others, and a controller; `config` is the rest of its TOML file.

    They run until `children` ends. Raises ProcessError if they do not come up.
    """
    started: dict[str, EmbeddedSwitch] = {}
    processes = []
    for switch in switches:
        above = None if switch.parent is None else started[switch.parent.name]
        started[switch.name], child = replace(switch, parent=above).start(children)
        processes.append(child)
    lines = [line for switch in started.values() for line in switch.table]
    with started_controller(children, processes, [*lines, *config], insecure=insecure) as system:
        yield replace(system, leaves=tuple(switch.name for switch in switches if switch.parent is not None))


@contextmanager
def started_controller(
    children: Children, switches: Sequence[Child], config: Sequence[str], *, insecure: bool
) -> Iterator[System]:
    """Start a controller of switches that answer, and wait until it serves jobs.

    `config` are the lines of the controller's TOML file. `insecure`: it serves beyond loopback, without TLS. All run
    until `children` ends. Raises ProcessError if it does not come up.
    """
    path = children.logs / "controller.toml"
    path.write_text("\n".join(config) + "\n", encoding="utf-8")
    controller = children.start("controller", [*P4REDUCE, "controller", "run", "--config", str(path)])
    jobs = controller.wait_line(r"ready: jobs on ([^,\s]+),", READY_S)[1]
    with JobClient(jobs, insecure=insecure) as client:
        yield System(jobs, client, tuple(switches), controller)


def new_state_dir(logs: Path) -> Path:
    """Return the folder in which a new controller beside these logs keeps its state.

    An earlier controller's state is removed: its switch has ended, and its jobs would collide with new ones.
    """
    folder = logs.resolve() / "controller-state"
    shutil.rmtree(folder, ignore_errors=True)
    return folder

"""A whole testbed: hosts, links, a switch and a controller, up for as long as a `with` block lasts."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from p4reduce_contracts import artifacts
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import JobServiceError
from p4reduce_lab.processes import P4REDUCE, Child, Children, terminable
from p4reduce_testbed import targets, wiring
from p4reduce_testbed.commands import need, need_root
from p4reduce_testbed.errors import TestbedError
from p4reduce_testbed.mininet_network import MininetNetwork
from p4reduce_testbed.networks import NetnsNetwork, Network
from p4reduce_testbed.shaping import shape
from p4reduce_testbed.sweep import MARK, guarded, new_mark
from p4reduce_testbed.topology import Host, Topology
from p4reduce_testbed.wiring import Management

CONTROLLER_PORT = 9600
MASTER_PORT = 29500
READY_S = 30.0
NETWORKS: dict[str, Callable[[Topology, str], Network]] = {"mininet": MininetNetwork, "netns": NetnsNetwork}
_HELD = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Settings:
    """What to build from a topology."""

    network: str = "mininet"
    target: str = "bmv2"
    pipeline: str = "default"
    management: str = wiring.DEFAULT_MANAGEMENT


@dataclass(frozen=True)
class Testbed:
    """One that is up."""

    topology: Topology
    pipeline: Path
    network: Network
    children: Children
    switch: Child
    controller_process: Child
    client: JobClient
    controller: str
    """HOST:PORT of the job service, as the hosts and this machine reach it."""

    def environment(self, host: Host, job: str) -> dict[str, str]:
        """The variables of a worker on a host, as torchrun would set them, and p4reduce's."""
        return {
            "RANK": str(host.rank),
            "WORLD_SIZE": str(len(self.topology.hosts)),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": self.topology.hosts[0].ip,
            "MASTER_PORT": str(MASTER_PORT),
            "P4REDUCE_JOB": job,
            "P4REDUCE_CONTROLLER": self.controller,
            "GLOO_SOCKET_IFNAME": wiring.DATA,
            "PYTHONUNBUFFERED": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        }

    def start_worker(self, name: str, host: Host, command: list[str], job: str) -> Child:
        """Run a command on a host; its output goes to `<name>.log`."""
        return self.children.start(name, [*self.network.within(host), *command], self.environment(host, job))

    def check(self) -> None:
        """Raises ProcessError if the switch or the controller has ended."""
        self.switch.check_running()
        self.controller_process.check_running()


@contextmanager
def running_testbed(topology: Topology, settings: Settings, logs: Path) -> Iterator[Testbed]:
    """Build the testbed, wait until jobs can be made, and take all of it down at the end, however that comes.

    Raises TestbedError, PipelineNotFound or ProcessError. The processes' output is in `logs`.
    """
    need_root()
    need("ip", "apt install iproute2")
    management = Management.parse(settings.management, topology)
    pipeline = artifacts.find(settings.pipeline)
    logs.mkdir(parents=True, exist_ok=True)
    mark = new_mark()
    with terminable(), _taken_down_in_peace() as stack:
        stack.enter_context(guarded(mark))
        stack.enter_context(_marked(mark))
        network = NETWORKS[settings.network](topology, mark)
        stack.callback(wiring.remove_links, mark)
        wiring.add_bridge(management, mark)
        stack.callback(network.close)
        network.open()
        for host in topology.hosts:
            within = network.within(host)
            wiring.add_management_link(host, network.namespace(host), mark)
            wiring.configure(host, management, within)
            shape(host, wiring.DATA, topology.switch.interface(host.port), within)
        children = stack.enter_context(Children(logs))
        yield _start(stack, topology, settings.target, pipeline, management, network, children)


def _start(
    stack: ExitStack,
    topology: Topology,
    target: str,
    pipeline: Path,
    management: Management,
    network: Network,
    children: Children,
) -> Testbed:
    """The switch, and when it answers, the controller."""
    p4runtime = f"127.0.0.1:{targets.free_port()}"
    interfaces = [f"{host.port}@{topology.switch.interface(host.port)}" for host in topology.hosts]
    switch = children.start("switch", targets.command(target, interfaces, p4runtime))
    switch.wait_ready(lambda: targets.answers(p4runtime), READY_S)
    address = f"{management.controller}:{CONTROLLER_PORT}"
    config = children.logs / "controller.toml"
    text = controller_config(topology, pipeline, p4runtime, address, children.logs)
    config.write_text(text, encoding="utf-8")
    command = [*P4REDUCE, "controller", "run", "--config", str(config)]
    controller = children.start("controller", command)
    client = stack.enter_context(JobClient(address))
    controller.wait_ready(lambda: _serves(client), READY_S)
    return Testbed(topology, pipeline, network, children, switch, controller, client, address)


def controller_config(topology: Topology, pipeline: Path, p4runtime: str, listen: str, logs: Path) -> str:
    """The controller's TOML: every host's MAC is at its port, and broadcasts go to all ports."""
    switch, text = topology.switch, json.dumps  # JSON strings are TOML strings too
    lines = [
        "[switch]",
        f"p4runtime = {text(p4runtime)}",
        f"device_id = {targets.DEVICE_ID}",
        f"pipeline = {text(str(pipeline.resolve()))}",
        f"address = {text(switch.ip)}",
        f"mac = {text(switch.mac)}",
        "",
        "[controller]",
        f"listen = {text(listen)}",
        f"state_dir = {text(str(logs.resolve() / 'controller-state'))}",
        "",
        "[forwarding]",
        f"flood = {[host.port for host in topology.hosts]}",
    ]
    for host in topology.hosts:
        lines += ["", "[[ports]]", f"number = {host.port}", f"mac = {text(host.mac)}"]
    return "\n".join(lines) + "\n"


def _serves(client: JobClient) -> bool:
    try:
        client.list_jobs()
    except JobServiceError:
        return False
    return True


@contextmanager
def _marked(mark: str) -> Iterator[None]:
    """All processes started in here bear the mark."""
    if MARK in os.environ:
        raise TestbedError("this is a testbed's own prompt or worker: leave it first")
    os.environ[MARK] = mark
    try:
        yield
    finally:
        del os.environ[MARK]


@contextmanager
def _taken_down_in_peace() -> Iterator[ExitStack]:
    """An exit stack that a second Ctrl-C does not interrupt; each of its steps has a deadline."""
    stack = ExitStack()
    try:
        yield stack
    finally:
        if threading.current_thread() is threading.main_thread():
            before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
            try:
                stack.close()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        else:
            stack.close()

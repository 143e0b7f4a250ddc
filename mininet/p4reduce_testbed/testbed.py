"""A testbed: hosts, links, a switch and a controller, for the duration of a `with` block."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from p4reduce_contracts import artifacts
from p4reduce_lab import targets
from p4reduce_lab.addresses import free_address
from p4reduce_lab.commands import need, need_root
from p4reduce_lab.network import NetworkBuilder
from p4reduce_lab.processes import Child, Children, terminable
from p4reduce_lab.system import System, new_state_dir, started_system, toml_text
from p4reduce_runtime.security import INSECURE_VARIABLE
from p4reduce_testbed import networks
from p4reduce_testbed.errors import TestbedError
from p4reduce_testbed.mininet_network import MininetNetwork
from p4reduce_testbed.networks import Management, NetnsNetwork, Network
from p4reduce_testbed.topology import Host, Topology

CONTROLLER_PORT = 9600
MASTER_PORT = 29500
INSIDE = "P4REDUCE_TESTBED"
"""The environment variable of all processes in a testbed, in which no other one can be built."""
NETWORKS: dict[str, Callable[[Topology, NetworkBuilder], Network]] = {"mininet": MininetNetwork, "netns": NetnsNetwork}
_HELD = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Settings:
    """What to build from a topology."""

    network: str = "mininet"
    target: str = "bmv2"
    pipeline: str = "default"
    management: str = networks.DEFAULT_MANAGEMENT


@dataclass(frozen=True)
class Testbed:
    """A running testbed."""

    topology: Topology
    pipeline: Path
    network: Network
    children: Children
    system: System
    """The switch and the controller, whose job service hosts and this machine can reach."""

    def environment(self, host: Host, job: str) -> dict[str, str]:
        """Return the variables of a worker on a host, as torchrun would set them, and p4reduce's."""
        return {
            "RANK": str(host.rank),
            "WORLD_SIZE": str(len(self.topology.hosts)),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": self.topology.hosts[0].ip,
            "MASTER_PORT": str(MASTER_PORT),
            "P4REDUCE_JOB": job,
            "P4REDUCE_CONTROLLER": self.system.controller,
            INSECURE_VARIABLE: "1",
            "GLOO_SOCKET_IFNAME": networks.DATA,
            "PYTHONUNBUFFERED": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        }

    def start_worker(self, name: str, host: Host, command: list[str], job: str) -> Child:
        """Run a command on a host; its output goes to `<name>.log`."""
        return self.children.start(name, [*self.network.namespace(host).within, *command], self.environment(host, job))


@contextmanager
def running_testbed(topology: Topology, settings: Settings, logs: Path) -> Iterator[Testbed]:
    """Build the testbed, wait until jobs can be made, and take it down at the end, also after errors and signals.

    Raises SetupError, PipelineNotFoundError or ProcessError. The processes' output is in `logs`.
    """
    need_root()
    for program, package in (("ip", "iproute2"), ("nsenter", "util-linux"), ("ethtool", "ethtool")):
        need(program, f"apt install {package}")
    management = Management.parse(settings.management, topology)
    pipeline = artifacts.find(settings.pipeline)
    logs.mkdir(parents=True, exist_ok=True)
    with terminable(), _uninterrupted_teardown() as stack:
        stack.enter_context(_inside())
        children = stack.enter_context(Children(logs))
        builder = NetworkBuilder(children)
        stack.callback(builder.close)
        network = NETWORKS[settings.network](topology, builder)
        stack.callback(network.close)
        stack.callback(children.stop)  # before the network goes
        network.open()
        namespaces = {host: network.namespace(host) for host in topology.hosts}
        management.build(builder, namespaces)
        for host, namespace in namespaces.items():
            networks.run_host_commands(host, namespace)
            networks.shape_data_link(topology, host, namespace)
        p4runtime, jobs = free_address(), f"{management.controller}:{CONTROLLER_PORT}"
        interfaces = [f"{host.port}@{topology.switch.interface(host.port)}" for host in topology.hosts]
        switch = targets.command(settings.target, interfaces, p4runtime)
        config = controller_config(topology, pipeline, p4runtime, jobs, logs)
        system = stack.enter_context(started_system(children, switch, p4runtime, jobs, config, insecure=True))
        yield Testbed(topology, pipeline, network, children, system)


def controller_config(topology: Topology, pipeline: Path, p4runtime: str, jobs: str, logs: Path) -> list[str]:
    """Write the controller's TOML, by lines: every host's MAC is at its port, and broadcasts go to all ports."""
    switch, text = topology.switch, toml_text
    lines = [
        "[switch]",
        f"p4runtime = {text(p4runtime)}",
        f"device_id = {targets.DEVICE_ID}",
        f"pipeline = {text(pipeline.resolve())}",
        f"address = {text(switch.ip)}",
        f"mac = {text(switch.mac)}",
        "",
        "[controller]",
        f"listen = {text(jobs)}",
        f"state_dir = {text(new_state_dir(logs))}",
        "",
        "[security]",
        "insecure = true  # only the testbed's hosts are on its network",
        "",
        "[forwarding]",
        f"flood = {[host.port for host in topology.hosts]}",
    ]
    for host in topology.hosts:
        lines += ["", "[[ports]]", f"number = {host.port}", f"mac = {text(host.mac)}"]
    return lines


@contextmanager
def _inside() -> Iterator[None]:
    """Mark the processes that are started in the block as inside a testbed. Raises TestbedError in one."""
    if INSIDE in os.environ:
        raise TestbedError("this is a testbed's own prompt or worker: leave it first")
    os.environ[INSIDE] = "1"
    try:
        yield
    finally:
        del os.environ[INSIDE]


@contextmanager
def _uninterrupted_teardown() -> Iterator[ExitStack]:
    """Yield an exit stack that a second Ctrl-C does not interrupt; each of its steps has a deadline."""
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

"""A testbed: hosts, links, switches and a controller, for the duration of a `with` block."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from p4reduce_lab.addresses import free_address
from p4reduce_lab.network import DATA, NetworkBuilder, need, need_root
from p4reduce_lab.processes import Child, Children, follow, terminable
from p4reduce_lab.shaping import shape_link
from p4reduce_lab.system import READY_S, System, started_controller
from p4reduce_runtime import pipeline_folders
from p4reduce_runtime.addresses import answers
from p4reduce_runtime.settings import toml_table
from p4reduce_testbed import networks, targets
from p4reduce_testbed.mininet_network import MininetNetwork
from p4reduce_testbed.networks import Management, NetnsNetwork, Trunks
from p4reduce_testbed.topology import Host, Topology, interface_name

CONTROLLER_PORT = 9600
MASTER_PORT = 29500
NETWORKS: dict[str, type[MininetNetwork | NetnsNetwork]] = {"mininet": MininetNetwork, "netns": NetnsNetwork}
_HELD = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Settings:
    """The settings with which a topology is built."""

    network: str = "mininet"
    target: str = "bmv2"
    pipeline: str = "default"
    management: str = networks.DEFAULT_MANAGEMENT


@dataclass(frozen=True)
class Testbed:
    """A running testbed."""

    topology: Topology
    pipeline: Path
    network: MininetNetwork | NetnsNetwork
    children: Children
    system: System
    """The switches and the controller, whose job service hosts and this machine can reach."""

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
            "P4REDUCE_INSECURE": "1",
            "GLOO_SOCKET_IFNAME": DATA,
            "PYTHONUNBUFFERED": "1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}",
        }

    def start_worker(self, name: str, host: Host, command: list[str], job: str) -> Child:
        """Run a command on a host; its output goes to `<name>.log`."""
        return self.children.start(name, [*self.network.namespace(host).within, *command], self.environment(host, job))

    def run_on_all(
        self,
        name: str,
        command: Callable[[Host], list[str]],
        job: str,
        *,
        on_line: Callable[[int, str], None],
        timeout_s: float | None = None,
        stall_s: float | None = None,
    ) -> None:
        """Run a command on every host until all have ended with status 0; `on_line` takes a rank and a line.

        Raises ProcessError when one fails (the rest are stopped at the testbed's end), the switch or the controller
        ends, `timeout_s` is over or no worker writes a line for `stall_s`.
        """
        workers = [self.start_worker(f"{name} {host.name}", host, command(host), job) for host in self.topology.hosts]
        follow(workers, on_line, self.system.check, timeout_s=timeout_s, stall_s=stall_s)


@contextmanager
def running_testbed(topology: Topology, settings: Settings, logs: Path) -> Iterator[Testbed]:
    """Build the testbed, wait until jobs can be made, and take it down at the end, also after errors and signals.

    Raises SetupError, PipelineNotFoundError or ProcessError. The processes' output is in `logs`.
    """
    need_root()
    for program, package in (("ip", "iproute2"), ("nsenter", "util-linux"), ("ethtool", "ethtool")):
        need(program, f"apt install {package}")
    management = Management.parse(settings.management, topology)
    pipeline = pipeline_folders.find(settings.pipeline)
    arch = targets.architecture(settings.target, pipeline, len(topology.switches))
    logs.mkdir(parents=True, exist_ok=True)
    with terminable(), _uninterrupted_teardown() as stack:
        children = stack.enter_context(Children(logs))
        builder = NetworkBuilder(children)
        stack.callback(builder.close)
        trunks = Trunks(builder)
        network = NETWORKS[settings.network](topology, builder, trunks)
        stack.callback(network.close)
        stack.callback(children.stop)  # before the network goes
        network.open()
        namespaces = {host: network.namespace(host) for host in topology.hosts}
        management.build(builder, namespaces)
        for host, namespace in namespaces.items():
            networks.run_host_commands(host, namespace)
            shape_link(host.name, host.shape, namespace, host.switch_interface)
        trunks.shape()
        processes: list[Child] = []
        started: dict[str, Child] = {}  # by the address at which it will answer
        for switch in topology.switches:
            ports = {port: interface_name(switch.name, port) for port in topology.ports(switch.name)}
            name, p4runtime = f"switch {switch.name}", free_address()
            commands = targets.commands(settings.target, ports, p4runtime, (logs / switch.name).resolve(), arch)
            for number, command in enumerate(commands):
                processes.append(children.start(name if number == 0 else f"{name} driver", command))
            started[p4runtime] = processes[-1]
        for p4runtime, child in started.items():
            child.wait_ready(partial(answers, p4runtime), READY_S)
        jobs = f"{management.controller}:{CONTROLLER_PORT}"  # without TLS: only the testbed's hosts are on its network
        tables = controller_tables(topology, pipeline, list(started), settings.target)
        system = stack.enter_context(started_controller(children, processes, tables, jobs, insecure=True))
        yield Testbed(topology, pipeline, network, children, system)


def controller_tables(
    topology: Topology, pipeline: Path, p4runtime: Sequence[str], target: str = Settings.target
) -> list[str]:
    """Return what the controller's TOML says of switches and ports: each host's MAC is at the port that leads to it.

    `p4runtime` are the addresses of the switches, in the order of the topology. Broadcasts go to all ports.
    """
    lines: list[str] = []
    for switch, address in zip(topology.switches, p4runtime, strict=True):
        between = {"trunk_address": switch.trunk_ip, "trunk_mac": switch.trunk_mac} if switch.trunk_ip else {}
        uplink = switch.uplink
        above = {} if uplink is None else {"parent": uplink.parent, "uplink_port": uplink.port}
        lines += toml_table(
            "[[switch]]",
            name=switch.name,
            p4runtime=address,
            pipeline=pipeline.resolve(),
            address=switch.ip,
            mac=switch.mac,
            flood=list(topology.ports(switch.name)),
            **targets.switch_keys(target),
            **between,
            **above,
        )
    for switch in topology.switches:
        for host in topology.hosts:
            port = topology.port_to(switch.name, host)
            lines += toml_table("[[ports]]", switch=switch.name, number=port, mac=host.mac)
    return lines


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

"""A switch, a controller and N workers on a network, which execute a case's requests."""

from __future__ import annotations

import json
import re
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_lab.addresses import LOOPBACK as LOOPBACK_ADDRESS
from p4reduce_lab.addresses import free_address, reserved_port
from p4reduce_lab.bench import links, open_mpi
from p4reduce_lab.bench.case import OPEN_MPI, Run
from p4reduce_lab.bench.links import Host, Link, Network
from p4reduce_lab.bench.rank import Reply
from p4reduce_lab.bench.tensors import ALL_OVERLAP
from p4reduce_lab.network import DATA, NetworkBuilder
from p4reduce_lab.processes import Child, ProcessError
from p4reduce_lab.system import EmbeddedSwitch, System, started_embedded_system
from p4reduce_runtime.underlay import AGGREGATION_PORT

Counts = dict[str, list[float]]
"""What was counted, by name with unit: a value for each request."""
CPU, SWITCH_CPU = "CPU us a worker", "CPU us of switches"
"""Names of what is counted: processor time."""
_ANSWER_S = 150.0
_START_S = 90.0
_JOB = "bench"
_PYTHON = (sys.executable, "-P", "-m")
_SPARSE = re.compile(r"(.+) (\d+)% (\S+)")
_CONTROLLER_PORT, _MASTER_PORT, _P4RUNTIME_PORT = 9600, 29500, 9559


@dataclass(frozen=True)
class Placement:
    """The places of the embedded switches that sum side by side."""

    name: str
    servers: int = 0
    """Switches on a server of their own each, whose link is like the hosts'."""
    on_each_host: bool = False
    of_launch: bool = False
    """The launch starts them, one on each host, and a controller; without hosts it needs none."""

    def switches(self, network: Network) -> list[EmbeddedSwitch]:
        """Return the switches, as they are started; one in the bridge, or on loopback, where there is no other."""
        if not network.hosts:
            return [EmbeddedSwitch(ONLY_SWITCH)]
        places = network.hosts if self.on_each_host else network.servers[: self.servers]
        return [
            EmbeddedSwitch(
                f"switch{number}",
                f"{place.address}:{AGGREGATION_PORT}",
                f"{place.address}:{_P4RUNTIME_PORT}",
                within=place.namespace.within,
            )
            for number, place in enumerate(places)
        ] or [EmbeddedSwitch(ONLY_SWITCH, f"{links.SWITCH_ADDRESS}:{AGGREGATION_PORT}")]


IN_BRIDGE = Placement("switch in the bridge")
OF_LAUNCH = Placement("the launch's switches", of_launch=True)
_ON_EACH_HOST = Placement("switch on each host", on_each_host=True)
_SERVERS = (Placement(f"{number} server{'s' * (number > 1)}", number) for number in (1, 2, 4))
PLACEMENTS = {placement.name: placement for placement in (IN_BRIDGE, OF_LAUNCH, _ON_EACH_HOST, *_SERVERS)}
"""By name."""


class Workers:
    """The ranks, each at the other end of a Unix socket."""

    def __init__(self, listener: socket.socket, children: list[Child]) -> None:
        """Wait until all of them have sent their rank. `children`: the process of each rank. Raises ProcessError."""
        self._children = children
        by_rank: dict[int, Any] = {}
        deadline = time.monotonic() + _START_S
        while len(by_rank) < len(children):
            try:
                connection = listener.accept()[0]
            except TimeoutError:
                for child in children:
                    child.check_running()
                if time.monotonic() > deadline:
                    raise children[-1].failure(f"or another worker did not start in {_START_S:g} s") from None
                continue
            connection.settimeout(_ANSWER_S)
            lines = connection.makefile("rw", encoding="utf-8")
            by_rank[int(json.loads(lines.readline())["rank"])] = lines
        self._lines = [by_rank[rank] for rank in range(len(children))]

    def ask(self, do: str, **arguments: object) -> list[Reply]:
        """Send a request to all ranks; return their replies, by rank. Raises ProcessError when one fails."""
        request = json.dumps({"do": do, **arguments})
        for lines in self._lines:
            print(request, file=lines, flush=True)
        replies = []
        for child, lines in zip(self._children, self._lines, strict=True):
            try:
                text = lines.readline()
            except TimeoutError:
                raise child.failure(f"did not answer to {request} in {_ANSWER_S:g} s") from None
            if not text:
                raise child.failure(f"ended during {request}")
            reply = json.loads(text)
            if "error" in reply:
                raise ProcessError(f"{child.name} failed {request}:\n{reply['error']}")
            replies.append(reply)
        return replies


@dataclass
class Cluster:
    """The processes of a running system, and its workers."""

    run: Run
    link: Link
    system: System | None
    workers: Workers
    mpi: Workers | None
    """The ranks of Open MPI, where it is measured."""
    network: Network

    def shape(self, link: Link) -> None:
        """Give all links another rate and burst."""
        self.network.shape(link)
        self.link = link

    def timed(self, do: str, counts: Counts | None = None, **arguments: object) -> float:
        """Send a request to all ranks; return the seconds of the slowest."""
        return max(float(reply["seconds"]) for reply in self.ask(do, counts, **arguments))

    def ask(self, do: str, counts: Counts | None = None, **arguments: object) -> list[Reply]:
        """Send a request to all ranks of a peer; return their replies, by rank.

        Appends what was counted to the lists of `counts`, by name with unit.
        """
        before = self._switch_seconds()
        workers = self.mpi if self.mpi is not None and arguments.get("peer") == OPEN_MPI else self.workers
        replies = workers.ask(do, **arguments)
        switch_s = self._switch_seconds() - before
        if counts is not None:
            for name, value in _counted(replies, switch_s, on_loopback=not self.network.hosts).items():
                counts.setdefault(name, []).append(value)
        return replies

    def _switch_seconds(self) -> float:
        return sum(cpu_seconds(switch.pid) for switch in (self.system.switches if self.system else ()))

    def all_reduce(
        self, peer: str, elements: int, counts: Counts | None = None, *, calls: int = 1, check: bool = False
    ) -> float:
        """Sum float32 tensors by a peer, so many times in a row; return the seconds of a call.

        Of "p4reduce 10% all-overlap" a share of the blocks, in a pattern, is not zero; of others all.
        """
        sparse = _SPARSE.fullmatch(peer)
        name, density, pattern = (sparse[1], int(sparse[2]) / 100, sparse[3]) if sparse else (peer, 1.0, ALL_OVERLAP)
        kind = {"elements": elements, "density": density, "pattern": pattern}
        return self.timed("all_reduce", counts, peer=name, **kind, calls=calls, check=check)


@contextmanager
def running_cluster(
    run: Run,
    link: Link,
    world_size: int,
    ranks_per_host: int = 1,
    *,
    share: bool = True,
    placement: Placement = IN_BRIDGE,
    mpi: bool = False,
) -> Iterator[Cluster]:
    """Start everything on hosts of a network, or on the loopback interface; take it down at the end.

    With one rank a host, or without `share`, each rank sends for itself, on the loopback interface too. `mpi`: with
    the ranks of Open MPI as well, in processes of their own, where it is installed.

    Raises ProcessError, and SetupError where the network cannot be built.
    """
    with ExitStack() as stack:
        network = links.Network()
        builder = NetworkBuilder(run.children)
        stack.callback(builder.close)
        stack.callback(run.children.stop)  # hosts, switches, controller and workers, the last one first
        if not link.on_loopback:
            network = links.build(builder, world_size // ranks_per_host, placement.servers)
            network.shape(link)
        variables = {"P4REDUCE_HOSTS": "on" if share and ranks_per_host > 1 or placement.of_launch else "off"}
        system = None
        if not placement.of_launch:
            jobs = free_address() if link.on_loopback else f"{links.SWITCH_ADDRESS}:{_CONTROLLER_PORT}"
            insecure = not link.on_loopback  # only the hosts are on this network
            switches = placement.switches(network)
            system = stack.enter_context(started_embedded_system(run.children, switches, jobs, insecure=insecure))
            stack.enter_context(system.job(_JOB, world_size))
            variables |= {"P4REDUCE_JOB": _JOB, "P4REDUCE_CONTROLLER": system.controller}
            variables |= {"P4REDUCE_INSECURE": str(int(insecure))}
        hosts = network.hosts
        each = ranks_per_host if hosts else world_size
        workers = _start_workers(run, stack, hosts, world_size, each, variables)
        workers.ask("join")
        of_mpi = None
        if mpi and open_mpi.NEED.there():
            of_mpi = _start_mpi(run, stack, hosts, world_size)
        elif mpi:
            run.skip(OPEN_MPI, f"that takes {open_mpi.NEED.what}")
        run.say(f"{world_size} workers have joined, {link}, {placement.name}")
        yield Cluster(run, link, system, workers, of_mpi, network)
        workers.ask("close")


def cpu_seconds(process: int) -> float:
    """Return the processor time that all threads of a process have used, to the nanosecond."""
    total = 0
    for path in Path(f"/proc/{process}/task").glob("*/schedstat"):
        try:
            total += int(path.read_text().split()[0])
        except OSError:  # the thread has just ended
            continue
    return total / 1e9


def _counted(replies: list[Reply], switch_s: float, on_loopback: bool) -> dict[str, float]:
    """Return what was counted, by name with unit. On loopback all ranks share one interface."""
    if on_loopback:
        counted = {"B over lo": float(max(reply["bytes_up"] for reply in replies))}
    else:
        counted = {
            "B up a worker": sum(reply["bytes_up"] for reply in replies) / len(replies),
            "B down a worker": sum(reply["bytes_down"] for reply in replies) / len(replies),
        }
    cpu_s = sum(reply["cpu_s"] for reply in replies)
    counted[CPU] = 1e6 * cpu_s / len(replies)
    if frames := sum(reply.get("frames", 0) for reply in replies):
        counted |= {
            "frames a worker": frames / len(replies),
            "repeated": float(sum(reply["repeated"] for reply in replies)),
            "worker CPU ns a frame": 1e9 * cpu_s / frames,
        }
        if switch_s:
            counted |= {"switch CPU ns a frame": 1e9 * switch_s / frames, SWITCH_CPU: 1e6 * switch_s}
    return counted


def _start_workers(
    run: Run, stack: ExitStack, hosts: Sequence[Host], world_size: int, each: int, variables: Mapping[str, str]
) -> Workers:
    """Start the ranks of gloo and p4reduce, so many on each host, with the variables of torchrun and these."""
    listener, arguments = _listen(stack, hosts, world_size)
    launch = {
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(each),
        "MASTER_ADDR": hosts[0].address if hosts else LOOPBACK_ADDRESS,
        "MASTER_PORT": str(_MASTER_PORT if hosts else stack.enter_context(reserved_port())),
        "GLOO_SOCKET_IFNAME": arguments[-1],
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    children = []
    for rank in range(world_size):
        within = hosts[rank // each].namespace.within if hosts else []
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank % each)}
        command = [*within, *_PYTHON, "p4reduce_lab.bench.worker", *arguments]
        children.append(run.children.start(f"worker {rank}", command, launch | own))
    return Workers(listener, children)


def _start_mpi(run: Run, stack: ExitStack, hosts: Sequence[Host], world_size: int) -> Workers:
    """Start the ranks of Open MPI, below one mpirun."""
    listener, arguments = _listen(stack, hosts, world_size)
    folder = Path(arguments[0]).parent
    command = [*open_mpi.launch(folder, hosts, world_size), *_PYTHON, "p4reduce_lab.bench.open_mpi", *arguments]
    child = run.children.start("mpirun", command, open_mpi.ENVIRONMENT | {"TMPDIR": str(folder)})
    return Workers(listener, [child] * world_size)


def _listen(stack: ExitStack, hosts: Sequence[Host], world_size: int) -> tuple[socket.socket, list[str]]:
    """Return a socket for the ranks, and a rank's arguments: the socket's path, the data interface."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
    listener = stack.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind(path := str(Path(folder) / "socket"))
    listener.listen(world_size)
    listener.settimeout(1.0)
    return listener, [path, DATA if hosts else "lo"]

"""Switch processes that are programmed from here, without a controller: one job, and frames made by `load.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from p4reduce_contracts import artifacts
from p4reduce_controller.config import Config, SwitchConfig
from p4reduce_controller.p4runtime.client import Client
from p4reduce_controller.registry.hello import Address
from p4reduce_controller.registry.job import Grant
from p4reduce_controller.switches import pipeline as pipelines
from p4reduce_controller.switches.entry_writer import EntryWriter
from p4reduce_controller.switches.mac_table import MacTable
from p4reduce_lab import targets
from p4reduce_lab.addresses import free_address
from p4reduce_lab.bench.case import Run, Series
from p4reduce_lab.bench.cluster import cpu_seconds
from p4reduce_lab.bench.links import LOOPBACK as LOOPBACK_LINK
from p4reduce_lab.bench.load import make_grant
from p4reduce_lab.bench.udp_load import UdpPeers
from p4reduce_lab.bench.veth_load import VethPeers
from p4reduce_lab.processes import Child, Children
from p4reduce_lab.system import ANY_PORT, EmbeddedSwitch
from p4reduce_runtime import pipeline_folders
from p4reduce_runtime.addresses import answers

GEOMETRY = "default"
EMBEDDED = "embedded switch"
"""The embedded switch's name in the results."""
RANKS = 4
_SECONDS, _QUICK_SECONDS = 2.0, 0.5
_READY_S = 60.0
_WARM_UP_S = 0.3
_ANSWER_S = 20.0


class SwitchProcess:
    """A running switch with our program; `install` admits a job."""

    def __init__(self, child: Child, p4runtime: str) -> None:
        """Wait until it answers at `p4runtime`, and give it our program.

        Raises ProcessError or P4RuntimeError.
        """
        child.wait_ready(lambda: answers(p4runtime), _READY_S)
        self.child, self.p4runtime = child, p4runtime
        self._client = Client(p4runtime, timeout_s=_ANSWER_S)
        self._client.connect()
        pipeline = pipelines.read(pipeline_folders.find(GEOMETRY))
        mac_table = MacTable(Config(), SwitchConfig(), pipeline.names)
        self._entry_writer = EntryWriter(self._client, SwitchConfig(), pipeline, mac_table)
        self._entry_writer.cold_start(1)

    def install(self, grant: Grant) -> None:
        """Write a job's entries."""
        self._entry_writer.install(grant, draws=1)

    def close(self) -> None:
        """End the connection; the process is its starter's."""
        self._client.close()


@dataclass
class Loaded:
    """A process under load, its peers, and what was counted in each measurement."""

    switch: SwitchProcess
    peers: UdpPeers | VethPeers
    frames_per_s: list[float] = field(default_factory=list)
    """Frames in a second of the clock, in each measurement."""
    a_core: list[float] = field(default_factory=list)
    """Frames in a second of the process's own processor time."""

    def load(self, seconds: float) -> float:
        """Load it for so long; return the frames a second."""
        process = self.switch.child
        before = cpu_seconds(process.pid)
        frames, spent = self.peers.load(seconds, process)
        self.a_core.append(frames / (cpu_seconds(process.pid) - before))
        self.frames_per_s.append(frames / spent)
        return frames / spent

    @property
    def cpu_ns(self) -> float:
        """The processor time of a frame, the median."""
        return 1e9 / median(self.a_core)


def load_in_turn(run: Run, processes: Iterable[Loaded], seconds: float) -> None:
    """Load each process in turn, after a warm-up."""
    for process in (processes := list(processes)):
        process.load(_WARM_UP_S)
        process.frames_per_s.clear()
        process.a_core.clear()
    run.in_turn({str(number): partial(process.load, seconds) for number, process in enumerate(processes)})


def load_over_udp(run: Run, loaded: Mapping[str, Loaded], slots: int) -> None:
    """Load embedded switches of UDP peers in turn, each given by its variant, and add their series."""
    load_in_turn(run, loaded.values(), _QUICK_SECONDS if run.quick else _SECONDS)
    for variant, process in loaded.items():
        counted = {"CPU ns a frame": process.cpu_ns, "frames/s by the clock": median(process.frames_per_s)}
        what = f"{RANKS} ranks, {slots} slots, 1,114-byte frames, {variant}"
        run.add(Series(what, EMBEDDED, str(LOOPBACK_LINK), "frames/s a core", process.a_core, {}, counted))


def over_udp(run: Run, stack: ExitStack, name: str, slots: int, *, runs: bool) -> tuple[SwitchProcess, UdpPeers]:
    """Start an embedded switch on loopback, with UDP peers of which a job of so many slots is admitted."""
    started, child = EmbeddedSwitch(name, ANY_PORT, ANY_PORT).start(run.children)
    switch = SwitchProcess(child, started.p4runtime)
    stack.callback(switch.close)
    host, _, port = started.listen.rpartition(":")
    peers = UdpPeers(host, int(port), RANKS, runs=runs)
    stack.callback(peers.close)
    switch.install(prepare(peers, peers.addresses(), slots))
    return switch, peers


def prepare(peers: UdpPeers | VethPeers, addresses: Sequence[Address], slots: int) -> Grant:
    """Make the frames of a job of ranks at these addresses; return what a switch is to be granted for it."""
    grant = make_grant(addresses, slots)
    peers.prepare(artifacts.geometry(pipeline_folders.find(GEOMETRY)), grant)
    return grant


def on_interfaces(children: Children, name: str, target: str, interfaces: Sequence[str]) -> SwitchProcess:
    """Start a switch of targets.TARGETS with these interfaces as ports 1 and on."""
    p4runtime = free_address()
    ports = [f"{number}@{interface}" for number, interface in enumerate(interfaces, 1)]
    return SwitchProcess(children.start(name, targets.command(target, ports, p4runtime)), p4runtime)

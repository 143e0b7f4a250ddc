"""The TNA program on the open SDE's model of a Tofino, behind its drivers' P4Runtime server: frames in, frames out.

The model answers when it likes. So each frame is followed by a marker on the same port: a contribution to a job of one
rank, whose result goes to all ports. What came to a port before the marker's result is what the frame gave there. Where
the number of answers is known, a marker whose result goes to its own port alone does, in a third of the time.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import queue
import random
import select
import shutil
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import TextIO

import pytest

from p4reduce_contracts import artifacts
from p4reduce_contracts.wire.numbers import DROP_REASONS
from p4reduce_controller.config import BF_SWITCHD
from p4reduce_controller.p4runtime.client import Client
from p4reduce_controller.registry.job import Grant
from p4reduce_controller.registry.slots import SlotRange
from p4reduce_controller.switches import pipeline as pipelines
from p4reduce_controller.switches.entries import tofino, v1model
from p4reduce_controller.switches.program_names import FLOOD_GROUP, TOFINO
from p4reduce_lab.addresses import free_port
from p4reduce_lab.network import Interface, Namespace, NetworkBuilder
from p4reduce_lab.processes import Child, Children
from p4reduce_runtime.addresses import answers
from p4reduce_runtime.p4runtime.entries import DigestConfig, MulticastGroup, TableEntry
from p4reduce_testbed import targets
from rigs import wire
from rigs.limits import LIMIT_S, wait_until
from rigs.p4src import load
from rigs.pipeline import (
    EPOCH,
    JOB,
    SLOT_COUNT,
    UPLINK_PORT,
    Host,
    PipelineRig,
    VersionState,
    frame_with,
    from_host,
    grant_of,
    rank_host,
    rank_port,
    switch_config,
    udp_frame,
    with_secret,
)
from rigs.secret import rank_secret
from rigs.traffic import COUNTERS, RANKS, damaged_traffic
from rigs.traffic import PORTS as FLOODED

build_tofino = load("build_tofino")
INCLUDE = os.environ.get(build_tofino.INCLUDE, "")
_PCIE_PORT = 320
"""The CPU port that the drivers serve, of a Tofino 1 with four pipes, as the model is."""
_FIRST_PORTS = {"tofino1-4x8": 0, "tofino2-4x16": 8}
"""What is added to the ports of PORTS: a Tofino 2 has none for hosts below."""
PORTS = tuple(range(1, 10))
"""Ports of the model that tests use, of its first pipe."""
LEAST_BYTES = 60
"""Ethernet's shortest frame, without FCS: shorter ones arrive with zeros behind them, as those sent for them do."""
_UPLINK = PORTS[-1]
"""The model's port in place of UPLINK_PORT."""
_MARKER_JOB = 230
_TO_ALL = len(PORTS)
"""What is added to a port for the number of its marker that goes to all ports; the port is that of the other one."""
_MARKER_SECRET = 0x5A5A5A5A5A5A5A5A
_CLONE_NEWNET = 0x40000000
_ETH_P_ALL = 3
_REGISTERS_UNREAD = VersionState(0, 0, 0, 0, 0, (), ())
"""P4Runtime of the drivers reads no registers: the answers alone show what is in them."""


def missing() -> str:
    """What this machine lacks for the model; "" where it lacks nothing."""
    programs = ("p4c-barefoot", "bfas", "p4c-bm2-ss", targets.MODEL, targets.DRIVER, "ip", "nsenter", "unshare")
    if absent := [program for program in programs if shutil.which(program) is None]:
        return f"{', '.join(absent)} not on PATH"
    if not (Path(INCLUDE) / "tna.p4").is_file():
        return f"{build_tofino.INCLUDE} names no folder with tna.p4"
    return "takes root: network namespaces and interfaces" if os.geteuid() else ""


NEEDS_MODEL = [
    pytest.mark.tofino,
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.processes,
    pytest.mark.skipif(bool(missing()), reason=missing() or "it is here"),
]
TARGETS = ("v1model", "tofino", pytest.param("tofino-model", marks=NEEDS_MODEL))
"""The programs that frames are tested on."""


@contextlib.contextmanager
def _within(namespace: Namespace) -> Iterator[None]:
    """Have this thread in a namespace; what it opens there stays there."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as own, open(f"/proc/{namespace.pid}/ns/net") as other:
        assert libc.setns(other.fileno(), _CLONE_NEWNET) == 0
        try:
            yield
        finally:
            assert libc.setns(own.fileno(), _CLONE_NEWNET) == 0


class TofinoModel:
    """A model of a chip with the program, the drivers, and the hosts' ends of its ports."""

    def __init__(self, children: Children, chip: str, folder: Path, cpu_port: int | None) -> None:
        """`folder`: of a compiled pipeline; `cpu_port`: as of `compiled`, an Ethernet port."""
        self.chip, self.first_port = chip, _FIRST_PORTS[chip]
        self.pipeline = pipelines.read(folder, BF_SWITCHD)
        self.geometry = artifacts.geometry(folder)
        self._registers = tofino.Registers.of(self.pipeline.p4info)
        self._network = NetworkBuilder(children)
        hosts = self._network.add_namespace("hosts")
        ports = PORTS if cpu_port is None else (*PORTS, cpu_port)
        for port in ports:
            ends = Interface(f"model{port}", offloads=False), Interface(f"port{port}", hosts, offloads=False)
            self._network.add_veth(*ends)
        with _within(hosts):
            self._sockets = {port: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) for port in ports}
            for port, sock in self._sockets.items():
                sock.bind((f"port{port}", _ETH_P_ALL))
                sock.settimeout(LIMIT_S)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._hosts = {port: self._sockets[port] for port in PORTS}
        self.address = f"127.0.0.1:{free_port()}"
        interfaces = {self.first_port + port: f"model{port}" for port in ports}
        arch = self.pipeline.p4info.pkg_info.arch
        commands = targets.commands(targets.MODEL, interfaces, self.address, children.logs / "switch", arch)
        self.processes = [children.start(f"tofino {number}", command) for number, command in enumerate(commands)]
        driver: Child = self.processes[-1]
        driver.wait_ready(lambda: answers(self.address), LIMIT_S)
        self.client = Client(self.address, device_id=0, timeout_s=LIMIT_S)
        self.packets: queue.Queue[tuple[bytes, dict[str, int]]] = queue.Queue()
        """Packets to the controller, with their metadata."""
        self.digests: queue.Queue[tuple[int, ...]] = queue.Queue()
        """(MAC address, port) of each frame that was reported."""
        self.client.on_packet_in = lambda payload, metadata: self.packets.put((payload, metadata))
        self.client.on_digest = lambda name, values: [self.digests.put(each) for each in values]
        self.slots = self._registers.slots - 2 * len(PORTS)
        """Slots that rigs may have; the others are the markers'."""
        self._rounds: Counter[int] = Counter()
        self._next_slot = 0
        self.held: list[TableEntry | MulticastGroup] = []
        """Entries of the present rig."""

    def load(self) -> None:
        """Set the pipeline, and write the markers' entries."""
        self.client.set_pipeline(self.pipeline.p4info, self.pipeline.device_config, cookie=1)
        self.client.insert(*v1model.switch_address(switch_config(), TOFINO))
        self.client.insert(DigestConfig(TOFINO.mac_learn, max_list_size=16, max_timeout_ns=100_000_000))
        for port in PORTS:
            for marker, reached in ((port, (port,)), (port + _TO_ALL, PORTS)):
                grant = self._marker_grant(port, marker)
                copies = tuple((self.first_port + each, 0) for each in reached)
                group = MulticastGroup(v1model.group_number(grant.job_id), copies)
                self.client.insert(group, *v1model.members(grant, switch_config(), TOFINO))
                self.client.insert(*self.admission(grant))

    def admission(self, grant: Grant) -> list[TableEntry]:
        return tofino.admission(grant, TOFINO, self._registers)

    def fresh_slots(self, count: int) -> int:
        """Return the first of so many slots that no rig has used: registers are zeroed by a new pipeline alone."""
        if self._next_slot + count > self.slots:
            self.held, self._next_slot = [], 0
            self._rounds.clear()
            self.load()
        first, self._next_slot = self._next_slot, self._next_slot + count
        return first

    def send(self, port: int, frame: bytes) -> None:
        self._sockets[port].send(frame)

    def receive(self, port: int) -> bytes:
        """Return the next frame that leaves a port."""
        return self._receive(self._sockets[port])

    def process(self, port: int, frame: bytes, expected: int | None = None) -> list[tuple[int, bytes]]:
        """Send a frame to a port; return what came of it, by port, in the order of each (see `answers`)."""
        self.send(port, frame)
        return self.answers(port, expected)

    def answers(self, port: int, expected: int | None = None) -> list[tuple[int, bytes]]:
        """Return what comes of the frames that were sent to a port.

        Waits for the `expected` number of frames; what comes beyond them may be returned by a later call. None: what
        comes before a marker to all ports is all.
        """
        marker = port + (_TO_ALL if expected is None else 0)
        number, self._rounds[marker] = self._rounds[marker], self._rounds[marker] + 1
        self.send(port, self._marker(marker, number))
        found: list[tuple[int, bytes]] = []
        for each, sock in self._hosts.items() if expected is None else ((port, self._hosts[port]),):
            while not self._is_marker(data := self._receive(sock), marker, number):
                found.append((each, data))
        while len(found) < (expected or 0):
            ready, _, _ = select.select(self._hosts.values(), (), (), LIMIT_S)
            assert ready, f"{len(found)} of {expected} frames came"
            found += [(each, self._receive(sock)) for each, sock in self._hosts.items() if sock in ready]
        return sorted(found, key=itemgetter(0))

    def _receive(self, sock: socket.socket) -> bytes:
        while True:
            data, address = sock.recvfrom(1 << 16)
            if address[2] != socket.PACKET_OUTGOING:  # type: ignore[attr-defined]
                return data

    def _marker_host(self, marker: int) -> Host:
        return Host(0x02000000F000 + marker, 0x0A00F000 + marker, 50000 + marker, _MARKER_SECRET)

    def _marker_grant(self, port: int, marker: int) -> Grant:
        slot = self._registers.slots - marker
        grant = grant_of([self._marker_host(marker)], port_of=lambda bit: self.first_port + port)
        return replace(grant, job_id=_MARKER_JOB + marker, slots=SlotRange(slot, 1))

    def _marker(self, marker: int, number: int) -> bytes:
        frame = frame_with(self.geometry, {}, job=_MARKER_JOB + marker, round=number)
        return from_host(self._marker_host(marker), with_secret(wire.pack(self.geometry, frame), _MARKER_SECRET))

    def _is_marker(self, data: bytes, marker: int, number: int) -> bool:
        if data[:6] != self._marker_host(marker).mac.to_bytes(6, "big"):
            return False
        assert wire.unpack(self.geometry, data[42:]).round == number, "a marker was lost"
        return True

    def drops(self) -> dict[str, int]:
        cells = self.client.read_counter(TOFINO.drops)
        return {DROP_REASONS[cell.index]: cell.packets for cell in cells if cell.index in DROP_REASONS}

    def close(self) -> None:
        self.client.close()
        for sock in self._sockets.values():
            sock.close()
        self._network.close()


class ModelRig(PipelineRig):
    """A job on the model; frames, answers and counters are PipelineRig's. It has slots that no other rig has had."""

    def __init__(
        self, model: TofinoModel, world_size: int, *, parent: Host | None = None, slot_count: int = SLOT_COUNT
    ) -> None:
        self.model, self.geometry = model, model.geometry
        self.world_size, self.parent, self.slot_count = world_size, parent, slot_count
        self.children = [rank_host(rank, rank_secret(rank)) for rank in range(world_size)]
        self._first_slot = model.fresh_slots(slot_count)
        if model.held:
            model.client.delete(*reversed(model.held))
        model.held = []
        grant = self._grant(EPOCH, self._first_slot)
        self._hold(*v1model.groups(grant), *v1model.members(grant, switch_config(), TOFINO))
        self._admitted: list[TableEntry] = []
        self.renew(EPOCH)
        self._drops_before = model.drops()
        self._counts_before = {name: self._count(name) for name in TOFINO.job_counters}

    def _grant(self, epoch: int, slot_base: int = 0) -> Grant:
        first = self.model.first_port
        port_of = lambda bit: first + rank_port(bit)  # noqa: E731
        grant = grant_of(self.children, self.parent, epoch, slot_base, self.slot_count, port_of)
        if grant.parent is None:
            return grant
        address = replace(grant.parent.address, ingress_port=first + _UPLINK)
        return replace(grant, parent=replace(grant.parent, address=address))

    def _hold(self, *entries: TableEntry | MulticastGroup) -> None:
        self.model.client.insert(*entries)
        self.model.held += entries

    def insert(self, table: str, match: tuple[int, ...], action: str, params: tuple[int, ...]) -> None:
        schema = self.model.client.schema
        info, called = schema.tables[f"MainIngress.{table}"], f"MainIngress.{table.split('.')[0]}.{action}"
        keyed = {key.name: value for key, value in zip(info.keys, match, strict=True)}
        given = {param.name: value for param, value in zip(schema.actions[called].params, params, strict=True)}
        self._hold(TableEntry(info.name, keyed, called, given))

    def flood_to(self, ports: Sequence[int]) -> None:
        self._hold(MulticastGroup(FLOOD_GROUP, tuple((self.model.first_port + port, 0) for port in ports)))

    def renew(self, epoch: int) -> None:
        if self._admitted:
            self.model.client.delete(*self._admitted)
            self.model.held = [entry for entry in self.model.held if entry not in self._admitted]
        self._admitted = self.model.admission(self._grant(epoch, self._first_slot))
        self._hold(*self._admitted)

    def process(self, port: int, frame: bytes, expected: int | None = None) -> list[tuple[int, bytes]]:
        found = self.model.process(_UPLINK if port == UPLINK_PORT else port, frame, expected)
        if len(frame) < LEAST_BYTES:
            found = [(at, data[: len(frame)] if not any(data[len(frame) :]) else data) for at, data in found]
        return [(UPLINK_PORT if at == _UPLINK else at, data) for at, data in found]

    def version_state(self, slot: int, version: int) -> VersionState:
        return _REGISTERS_UNREAD

    def drops(self) -> dict[str, int]:
        return {
            reason: count - self._drops_before[reason]
            for reason, count in self.model.drops().items()
            if count > self._drops_before[reason]
        }

    def job_count(self, counter: str) -> int:
        return self._count(counter) - self._counts_before[counter]

    def _count(self, counter: str) -> int:
        (cell,) = self.model.client.read_counter(TOFINO.job_counters[counter], JOB)
        return cell.packets


@contextlib.contextmanager
def one_model() -> Iterator[None]:
    """Wait until no other test has a model: each takes 4 GB of memory, most huge pages, and names of interfaces."""
    with Path("/run/lock/p4reduce-tofino-model").open("w") as lock:
        wait_until(lambda: _locks(lock), f"another test has {lock.name}")
        yield


def _locks(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def running_model(chip: str, folder: Path, pipeline: Path, cpu_port: int | None = None) -> Iterator[TofinoModel]:
    """Run the compiled program until the block ends. `folder`: for logs; `cpu_port` as of `compiled`."""
    with one_model(), Children(folder) as children:
        model = TofinoModel(children, chip, pipeline, cpu_port)
        try:
            model.client.connect()
            model.load()
            yield model
        finally:
            model.close()


def compiled(chip: str, folder: Path, cpu_port: int | None = None) -> Path:
    """Return the folder of the compiled program below `folder`, which is made once. Without `cpu_port`: PCIe's."""
    if cpu_port is None and chip == "tofino1-4x8":
        cpu_port = _PCIE_PORT
    loaded, report = folder / f"{chip}-cpu{cpu_port}", folder / f"{chip}-cpu{cpu_port}-report"
    if not loaded.is_dir():
        report.mkdir(exist_ok=True)
        build_tofino.compile_chip(chip, INCLUDE, report, loaded, cpu_port)
    return loaded


def check_answers(model: TofinoModel, seed: int, steps: int) -> None:
    """Damaged traffic gets the same bytes from the same ports as the v1model program gives, and counts the same."""
    reference, rig = PipelineRig(model.chip, RANKS), ModelRig(model, RANKS)
    check_frames(reference, rig, damaged_traffic(reference, random.Random(seed), steps))
    assert len(rig.drops()) > 5
    assert [rig.job_count(name) for name in COUNTERS] == [reference.job_count(name) for name in COUNTERS]


def check_frames(reference: PipelineRig, rig: ModelRig, frames: Iterable[tuple[int, bytes]]) -> None:
    """Each frame, with its port, gets the same bytes from the same ports of both, and drops count the same."""
    for each in (reference, rig):
        each.flood_to(FLOODED)
    for port, frame in frames:
        wanted = sorted(reference.process(port, frame), key=itemgetter(0))
        assert rig.process(port, frame, len(wanted)) == wanted
    assert not any(map(rig.model.answers, PORTS))
    assert rig.drops() == reference.drops()


def check_controller_port(model: TofinoModel) -> None:
    """A HELLO goes to the controller with its port, and a packet-out leaves the port that it names."""
    rig = ModelRig(model, 2)
    hello = udp_frame(1, wire.pack_hello(JOB, 0x1122334455667788))
    assert rig.process(rank_port(1), hello) == []
    payload, metadata = model.packets.get(timeout=LIMIT_S)
    assert (payload, metadata["ingress_port"]) == (hello, model.first_port + rank_port(1))
    model.client.packet_out(hello, model.first_port + 3)
    assert model.receive(3) == hello

"""For tests of the job service: a P4Runtime client with the switch in memory, and a controller in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from click.testing import CliRunner
from msgspec import structs

from p4reduce_contracts.cli import main
from p4reduce_contracts.jobs.answers import JoinTicket
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.lease import ONLY_SWITCH, Lease
from p4reduce_contracts.wire.hello import nonce_for
from p4reduce_controller.config import Config, HostAddress, HostPort, MacAddress, SecurityConfig
from p4reduce_controller.p4runtime.client import Client, Operation, Pipeline
from p4reduce_controller.registry.hello import Address
from p4reduce_controller.registry.job import Child, Grant, Member
from p4reduce_controller.registry.slots import SlotRange
from p4reduce_controller.service import process
from p4reduce_controller.service.process import Controller
from p4reduce_controller.switches import pipeline as pipelines
from p4reduce_controller.switches import reconciler
from p4reduce_controller.switches.entry_writer import EntryWriter
from p4reduce_controller.switches.mac_table import MacTable
from p4reduce_runtime.p4runtime.entries import CounterEntry, Entry, MeterEntry, MulticastGroup, TableEntry
from p4reduce_runtime.p4runtime.errors import Failure, NotPrimaryError, SwitchUnreachableError, WriteError
from p4reduce_runtime.pipeline_folders import find
from p4reduce_runtime.security import Security
from p4reduce_runtime.underlay import pack_hello
from rigs.limits import LIMIT_S
from rigs.pipeline import Host, from_host

UPLINK = 99
RACKS = {"root": "", "leaf1": "root", "leaf2": "root"}
"""Switches and their parents."""
SIDE_BY_SIDE = ("a", "b", "c")
"""Switches side by side."""
_P4INFO = """
pkg_info { arch: "v1model" }
actions {
  preamble { id: 1 name: "MainIngress.admission.admit_rank" }
  params { id: 1 name: "to_parent" bitwidth: 1 }
}
"""
OWN_TABLES = {"job_member": 1, "switch_address": 1, "own_ip": 1, "own_mac": 1}
"""Entries by table that a switch holds without any job."""
T = TypeVar("T")


class FakeSwitchClient(Client):
    """A client as strict as a real switch: inserting twice or deleting what is absent is a WriteError."""

    def __init__(self) -> None:
        super().__init__(address="in memory")
        self.reachable = True
        self.other_primary: str | None = None
        """The name of another controller that is primary and cannot be outbid; None: there is none."""
        self.connected = False
        self.pipeline: Pipeline | None = None
        self.entries: dict[str, Entry] = {}
        self.counters: dict[tuple[str, int], tuple[int, int]] = {}
        self.refuse: Callable[[str, Entry], bool] = lambda operation, entry: False
        self.before_write: Callable[[str, Entry], None] = lambda operation, entry: None
        self.before_pipeline: Callable[[], None] = lambda: None
        self.before_packet_out: Callable[[], None] = lambda: None
        self.log: list[tuple[str, Entry]] = []
        self.connections = 0
        self.commits = 0
        self.answering = threading.Event()  # cleared: calls get no answer, and the stream stays
        self.answering.set()
        self.cables: dict[int, tuple[FakeSwitchClient, int]] = {}
        """Port -> the switch at the other end of the cable, and its port."""

    def connect(self, *, require_primary: bool = True) -> None:
        self._check()
        if require_primary and self.other_primary:
            raise NotPrimaryError(self.other_primary)
        self.connected = True
        self.connections += 1

    def close(self) -> None:
        self.connected = False

    def why_not_primary(self) -> str | None:
        return self.other_primary

    def restart(self) -> None:
        """The switch process ends and comes back empty."""
        self.pipeline = None
        self.entries.clear()
        self.counters.clear()
        self.lose()

    def lose(self) -> None:
        self.connected = False
        assert self.on_lost is not None
        self.on_lost(SwitchUnreachableError("the stream ended"))

    def get_pipeline(self) -> Pipeline | None:
        self._check()
        return self.pipeline

    def set_pipeline(self, p4info: Any, device_config: bytes, *, cookie: int | None = None) -> None:
        self._check()
        if self.other_primary:
            raise NotPrimaryError(self.other_primary)
        self.before_pipeline()
        self.pipeline = Pipeline(p4info, device_config, cookie)
        self.commits += 1
        self.entries.clear()
        self.counters.clear()

    def write(self, updates: Iterable[tuple[Operation, Any]]) -> None:
        self._check()
        if self.other_primary:
            raise NotPrimaryError(self.other_primary)
        failures = []
        for index, (operation, entry) in enumerate(updates):
            self.before_write(operation, entry)
            key = identity(entry)
            code = ""
            if self.refuse(operation, entry):
                code = "RESOURCE_EXHAUSTED"
            elif operation == "insert" and key in self.entries:
                code = "ALREADY_EXISTS"
            elif operation != "insert" and key not in self.entries and not isinstance(entry, MeterEntry):
                code = "NOT_FOUND"
            if code:
                failures.append(Failure(index, operation, entry, code, "no"))
            elif operation == "delete":
                del self.entries[key]
            else:
                self.entries[key] = entry
            self.log.append((operation, entry))
        if failures:
            raise WriteError(f"{failures[0]}", failures)

    def read_table(self, name: str) -> list[TableEntry]:
        self._check()
        return [one for one in self._held() if isinstance(one, TableEntry) and one.table == name]

    def read_counter(self, name: str, index: int | None = None) -> list[CounterEntry]:
        self._check()
        indexes = range(256) if index is None else [index]
        return [CounterEntry(name, one, *self.counters.get((name, one), (0, 0))) for one in indexes]

    def read_groups(self) -> list[MulticastGroup]:
        self._check()
        return [one for one in self._held() if isinstance(one, MulticastGroup)]

    def tables(self) -> dict[str, int]:
        """Return how many entries each table has, by the last part of its name; groups by number."""
        held = self._held()
        tables = [entry.table.rpartition(".")[2] for entry in held if isinstance(entry, TableEntry)]
        return Counter(tables + [f"group {entry.group_id}" for entry in held if isinstance(entry, MulticastGroup)])

    def capabilities(self) -> str:
        self._check()
        return "1.3.0"

    def packet_out(self, payload: bytes, egress_port: int, **metadata: int) -> None:
        """The switch at the other end punts the frame, if it has a pipeline, to its primary controller."""
        self._check()
        self.before_packet_out()
        if egress_port in self.cables:
            other, port = self.cables[egress_port]
            hears = other.connected and other.pipeline is not None and not other.other_primary
            if hears and other.on_packet_in is not None:
                other.on_packet_in(payload, {"ingress_port": port})

    def _held(self) -> list[Entry]:
        """A copy: tests change the entries while the controller's thread reads them."""
        return list(self.entries.values())

    def _check(self) -> None:
        if not self.answering.wait(self.timeout_s):
            raise SwitchUnreachableError("no answer in time")
        if not self.reachable:
            raise SwitchUnreachableError("connection refused")


def identity(entry: Entry) -> str:
    """Return the key by which a switch tells entries apart."""
    if isinstance(entry, TableEntry):
        return f"{entry.table} {sorted(entry.match.items())}"
    if isinstance(entry, MulticastGroup):
        return f"group {entry.group_id}"
    return repr(entry)


def make_entry_writer(client: Client, pipeline: str | Path = "small", **changes: Any) -> EntryWriter:
    """Connect the client of a switch, whose configuration has these changes; return its entry writer."""
    config, compiled = Config(), pipelines.read(find(pipeline))
    only = structs.replace(config.switches[0], **changes)
    client.connect()
    return EntryWriter(client, only, compiled, MacTable(config, only, compiled.names))


def one_rank_grant(number: int) -> Grant:
    """The grant of a job of one rank at port 1 + number."""
    address = Address(ingress_port=1 + number, mac=0x020000000A00 + number, ip=0x0A00000A + number, udp_port=4000)
    return Grant(1 + number, f"job{number}", 1 + number, SlotRange(4 * number, 4), (Child(address, number, (0,)),))


def check_restarts(make: Callable[[], EntryWriter]) -> EntryWriter:
    """Let a controller start, install two jobs and end; return the entry writer of a second one, which keeps job 2."""
    grants, first = [one_rank_grant(number) for number in range(2)], make()
    assert first.warm_restart(7, [], 0) is None, "it has no pipeline"
    first.cold_start(7)
    for draws, grant in enumerate(grants, 1):
        first.install(grant, draws)
    first.learn([(0x020000000A00, 3)])
    first.client.close()
    second = make()
    assert second.warm_restart(8, grants, 2) is None, "another era's"
    assert second.warm_restart(7, grants, 1) is None, "an epoch was drawn that this controller does not know"
    assert second.warm_restart(7, grants, 2) == {1, 2}
    assert second.warm_restart(7, grants[1:], 3) == {2}
    assert {entry.match["job"] for entry in second.client.read_table(second._names.admit)} == {2}
    assert [entry.match for entry in second.client.read_table(second._names.mac_table)] == [{"dst_mac": 0x020000000A00}]
    return second


def hello_frame(job_id: int, nonce: int, rank: int) -> bytes:
    """The HELLO of a worker at 10.0.0.(10 + rank), as the switch punts it."""
    host = Host(0x020000000A00 + rank, 0x0A00000A + rank, 4000 + rank, 0)
    return from_host(host, pack_hello(job_id, nonce))


@dataclass
class FakeClock:
    """Seconds that pass only by a call."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Running:
    """A controller that serves in a thread of its own."""

    controller: Controller
    clients: Mapping[str, FakeSwitchClient]
    clock: FakeClock
    loop: asyncio.AbstractEventLoop
    task: asyncio.Task[None]

    @property
    def address(self) -> str:
        return self.controller.address

    @property
    def client(self) -> FakeSwitchClient:
        (client,) = self.clients.values()
        return client

    def call(self, function: Callable[[], T]) -> T:
        """Run `function` on the controller's loop."""

        async def run() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(LIMIT_S)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Return when the condition holds on the controller's loop; it is looked at whenever something changes."""

        async def run() -> None:
            async with asyncio.timeout(LIMIT_S):
                while not condition():
                    await self.controller.notifier.wait()

        asyncio.run_coroutine_threadsafe(run(), self.loop).result(2 * LIMIT_S)

    def wait_for_waiters(self, members: dict[int, Member], count: int) -> None:
        """Return when `count` calls of WaitLease are in progress for these members."""
        self.wait(lambda: sum(member.waiting for member in members.values()) == count)

    def hello(self, job_id: int, nonce: int, rank: int, switch: str = ONLY_SWITCH) -> None:
        """A HELLO comes through the switch, from port 1 + rank; returns when the registry has seen it."""
        on_packet_in = self.clients[switch].on_packet_in
        assert on_packet_in is not None
        on_packet_in(hello_frame(job_id, nonce, rank), {"ingress_port": 1 + rank})
        self.call(lambda: None)

    def pass_time(self, seconds: float) -> None:
        """Time passes and the controller looks for silent members."""

        def sweep() -> None:
            self.controller._awake_at = self.loop.time()  # or a busy machine's pause counts as one of the controller
            self.controller.sweep()

        self.clock.now += seconds
        self.call(sweep)


def make_config(folder: Path, columns: int = 4, block_words: int = 8, slots: int = 16) -> Config:
    """A configuration with a pipeline and all state in `folder`."""
    pipeline = folder / "pipeline"
    pipeline.mkdir(exist_ok=True)
    (pipeline / "p4reduce.json").write_text("{}")
    (pipeline / "p4reduce.p4info.txtpb").write_text(_P4INFO)
    (pipeline / "geometry.toml").write_text(f"columns = {columns}\nblock_words = {block_words}\nslots = {slots}\n")
    config = Config()
    return structs.replace(
        config,
        switches=(structs.replace(config.switches[0], pipeline=str(pipeline), connect_timeout_s=0.3),),
        controller=structs.replace(config.controller, listen="127.0.0.1:0", state_dir=str(folder / "state")),
    )


def with_security(config: Config, files: Security) -> Config:
    return structs.replace(config, security=SecurityConfig(str(files.ca), str(files.certificate), str(files.key)))


def with_tree(config: Config, parents: Mapping[str, str]) -> Config:
    """The configuration with these switches and their parents. Uplink ports are UPLINK; all share an address."""
    only = config.switches[0]
    return structs.replace(
        config,
        switches=tuple(
            structs.replace(
                only,
                name=name,
                p4runtime=HostPort(f"127.0.0.1:{10000 + number}"),
                parent=parent or None,
                uplink_port=UPLINK if parent else None,
                trunk_address=HostAddress(f"10.255.0.{1 + number}"),
                trunk_mac=MacAddress(f"02:00:00:ff:00:{1 + number:02x}"),
            )
            for number, (name, parent) in enumerate(parents.items())
        ),
    )


def with_switches_side_by_side(config: Config, names: Iterable[str] = SIDE_BY_SIDE) -> Config:
    """The configuration with these switches, at UDP ports 4001, 4002, ... of one address."""
    apart = with_tree(config, dict.fromkeys(names, "")).switches
    return structs.replace(
        config, switches=tuple(structs.replace(each, udp_port=4001 + n) for n, each in enumerate(apart))
    )


def connect_cables(config: Config, clients: Mapping[str, FakeSwitchClient]) -> None:
    """Connect the UPLINK of each switch to its parent: of its n-th child to port 101 + n."""
    for switch in config.switches:
        if switch.parent and UPLINK not in clients[switch.name].cables:
            child, parent = clients[switch.name], clients[switch.parent]
            port = 101 + sum(port > 100 for port in parent.cables)
            child.cables[UPLINK], parent.cables[port] = (parent, port), (child, UPLINK)


InThread = tuple[Controller, asyncio.AbstractEventLoop, "asyncio.Task[None]"]


@contextlib.contextmanager
def in_a_thread(make: Callable[[], Controller]) -> Iterator[InThread]:
    """A controller that serves in a thread until the block ends; what ends it is raised there.

    A switch may take LIMIT_S for an answer, and so may a scrape: only a busy machine delays one in memory.
    """
    started: Future[InThread] = Future()

    async def serve() -> None:
        try:
            controller = make()
            await controller.start()
        except BaseException as error:
            started.set_exception(error)
            return
        task = asyncio.ensure_future(controller.run())
        started.set_result((controller, asyncio.get_running_loop(), task))
        await task

    pool = ThreadPoolExecutor(1)
    ended = pool.submit(asyncio.run, serve())
    pool.shutdown(wait=False)
    controller, loop, task = started.result(LIMIT_S)
    try:
        with (
            mock.patch.object(reconciler, "_ANSWER_LIMIT_S", LIMIT_S),
            mock.patch.object(process, "_SCRAPE_LIMIT_S", LIMIT_S),
        ):
            yield controller, loop, task
    finally:
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            loop.call_soon_threadsafe(controller.stop)
        wait([ended], LIMIT_S)
    ended.result(0)


@contextlib.contextmanager
def serving(config: Config, *clients: FakeSwitchClient) -> Iterator[Running]:
    """A controller over switches in memory; `clients` are of its switches."""
    names = [switch.name for switch in config.switches]
    by_name = dict(zip(names, clients or [FakeSwitchClient() for _ in names], strict=True))
    connect_cables(config, by_name)
    clock = FakeClock()
    with in_a_thread(lambda: Controller(config, by_name, clock)) as (controller, loop, task):
        yield Running(controller, by_name, clock, loop, task)


Places = Sequence[str | tuple[str, ...]]
"""For each rank of a job the switch at which its HELLO arrives, or those side by side."""


def join_at(running: Running, client: JobClient, job: str, at: Places) -> list[JoinTicket]:
    tickets = [client.join(job, rank, len(at)) for rank in range(len(at))]
    for ticket, switches in zip(tickets, at, strict=True):
        for switch in (switches,) if isinstance(switches, str) else switches:
            place = SIDE_BY_SIDE.index(switch) if switch in SIDE_BY_SIDE else 0
            running.hello(ticket.job_id, nonce_for(ticket.nonce, place), ticket.rank, switch)
    return tickets


def form_at(running: Running, client: JobClient, job: str, at: Places) -> tuple[list[JoinTicket], list[Lease]]:
    tickets = join_at(running, client, job, at)
    return tickets, [client.wait_lease(ticket.nonce, LIMIT_S) for ticket in tickets]


def form(running: Running, client: JobClient, job: str, world_size: int) -> tuple[list[JoinTicket], list[Lease]]:
    return form_at(running, client, job, [ONLY_SWITCH] * world_size)


def create_and_form(
    running: Running, client: JobClient, job: str, world_size: int, slots: int | None = None
) -> tuple[list[JoinTicket], list[Lease]]:
    client.create_job(job, world_size, slots)
    return form(running, client, job, world_size)


def shown(running: Running, *arguments: str) -> str:
    """Return what a command prints of this controller."""
    result = CliRunner().invoke(main, [*arguments, "--controller", running.address])
    assert result.exit_code == 0, result.output
    return result.output


def rows(text: str, beginning: str) -> list[list[str]]:
    """The cells of the rows whose first cell is this."""
    found = [[cell.strip() for cell in line.strip("│┃ ").split("│")] for line in text.splitlines()]
    return [cells for cells in found if cells[0] == beginning]

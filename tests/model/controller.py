"""What can happen to a controller: a search over the real registry, store, entry writers and reconcilers.

A sequence of events is played from the beginning; sequences that lead to equal situations go on once. Switches are
`FakeSwitchClient`. The controller may be killed before every write to a switch or to its store, and begin with an older
copy of its store.

After each event, at each switch: no two grants share a slot, no epoch comes back to a slot whose registers may hold it,
a job is ACTIVE only while it has all its entries, and once the reconciler has no work there are no other entries. A job
over switches side by side has grants as soon as its HELLOs are at those that can be used, and gets none elsewhere.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from model.ranks import BrokenPropertyError
from p4reduce_contracts.jobs.errors import JobServiceError
from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_contracts.wire.hello import nonce_for
from p4reduce_controller.config import Config, SwitchConfig
from p4reduce_controller.registry.hello import parse_hello
from p4reduce_controller.registry.links import Links
from p4reduce_controller.registry.registry import Registry
from p4reduce_controller.registry.tree import Tree, TreeSwitch
from p4reduce_controller.service.store import Store
from p4reduce_controller.switches import pipeline as pipelines
from p4reduce_controller.switches.connection import State
from p4reduce_controller.switches.entries.v1model import draws_mark
from p4reduce_controller.switches.entry_writer import EntryWriter
from p4reduce_controller.switches.mac_table import MacTable
from p4reduce_controller.switches.reconciler import Notifier, SwitchReconciler
from p4reduce_runtime.p4runtime.entries import Entry, MulticastGroup, TableEntry
from p4reduce_runtime.pipeline_folders import find
from rigs.fake_switch_client import (
    FakeClock,
    FakeSwitchClient,
    connect_cables,
    hello_frame,
    identity,
    make_config,
    with_switches_side_by_side,
    with_tree,
)


class Event(NamedTuple):
    """`name` with its arguments; `killed_at`: the write before which the controller is killed, from 1 on; 0: none."""

    name: str
    job: str = ""
    rank: int = -1
    killed_at: int = 0
    switch: str = ""

    def __str__(self) -> str:
        text = " ".join(str(part) for part in (self.switch, self.name, self.job, self.rank) if part not in ("", -1))
        return f"{text}, and the controller is killed before write {self.killed_at}" if self.killed_at else text


@dataclass(frozen=True)
class Plan:
    """What a search tries: jobs with the sizes of their worlds, the switches' slots, and how often what may happen."""

    jobs: dict[str, int]
    slots: int
    """Slots of each switch; each job takes two."""
    begun: tuple[Event, ...]
    """The events before the search begins."""
    longest: int
    """Events in a sequence after that."""
    most: dict[str, int]
    """Name of event -> how often it may happen; an event that is not here may happen at any time."""
    tree: dict[str, str] = field(default_factory=lambda: {ONLY_SWITCH: ""})
    """The switches, and the parent of each."""
    ranks_at: tuple[str, ...] = ()
    """The switches of the ranks of each job; without any, all are at the only one."""


class _KilledError(BaseException):
    """The controller's process ends here."""


class _Store(Store):
    before_write: Callable[[], None]

    @contextmanager
    def _written(self) -> Iterator[Any]:
        self.before_write()
        with super()._written() as db:
            yield db


class Situation:
    """Switches, and a controller that may be killed and started again."""

    def __init__(self, folder: Path, config: Config, plan: Plan) -> None:
        self._folder, self._config, self._plan = folder, config, plan
        self._copy = folder.with_name("copy")
        shutil.rmtree(self._copy, ignore_errors=True)
        self._pipeline = pipelines.read(find(config.switches[0].pipeline))
        self._mark = identity(draws_mark(0, self._pipeline.names))
        self._clock = FakeClock()
        self._clients: dict[str, FakeSwitchClient] = {switch.name: FakeSwitchClient() for switch in config.switches}
        connect_cables(config, self._clients)
        for name, client in self._clients.items():
            client.before_write = partial(self._before_entry, name)
            client.before_pipeline = partial(self._before_pipeline, name)
        self._writes_left = 0
        self._drawn = 0
        self._seen: dict[tuple[str, int, int], Any] = {}
        """Switch, slot and epoch -> the secrets of the children that were admitted since the pipeline was set."""
        self._events: list[Event] = []
        self._start()

    # ---- events

    def events(self) -> list[Event]:
        registry = self._registry
        known = {job.name: job for job in registry.jobs()}
        found = [Event("create", name) for name in self._plan.jobs if name not in known]
        for name, job in known.items():
            found.append(Event("remove", name))
            for rank in range(job.world_size):
                member = job.members.get(rank)
                if member is None:
                    found.append(Event("join", name, rank))
                    continue
                found += [Event("leave", name, rank), Event("silent", name, rank)]
                for place in self._switches_of(rank):
                    client = self._clients[place]
                    if place not in member.addresses and client.connected and client.pipeline is not None:
                        found.append(Event("hello", name, rank, switch=place))
        for switch, client in self._clients.items():
            reconciler = self._reconcilers[switch]
            events = []
            if reconciler.unavailable_reason() or reconciler._has_work():
                events.append("reconcile")
            elif registry.links.hellos(switch):
                events.append("says HELLO")
            if reconciler._reset_timer is not None:
                events.append("stays away")
            if client.connected:
                events += ["stream lost", "restarts"]
                if not client.other_primary:
                    events.append("another primary")
            if client.other_primary:
                events += ["another primary deletes the entries", "another primary ends"]
            found += [Event(event, switch=switch) for event in events]
        found.append(Event("controller restarts"))
        if self._copy.exists():
            found.append(Event("copy put back"))
        for event in list(found):
            if event.name in ("create", "remove", "join", "leave", "hello", "reconcile"):
                most = 12 if event.name == "reconcile" else 2
                found += [event._replace(killed_at=write) for write in range(1, most + 1)]
        return [event for event in found if self._allowed(event)]

    def _switches_of(self, rank: int) -> Sequence[str]:
        return (self._plan.ranks_at[rank],) if self._plan.ranks_at else tuple(self._clients)

    def _allowed(self, event: Event) -> bool:
        name = "killed" if event.killed_at else event.name
        before = sum(name == ("killed" if past.killed_at else past.name) for past in self._events)
        return before < self._plan.most.get(name, 1 << 30)

    async def happen(self, event: Event) -> bool:
        """Let an event happen; False if the controller had not as many writes to make as `killed_at` says."""
        self._events.append(event)
        self._writes_left = event.killed_at
        try:
            await self._happen(event)
        except _KilledError:
            await self.end()
            if event.name == "copy put back":
                shutil.rmtree(self._folder)
                self._copy.rename(self._folder)
            self._start()
        else:
            if self._writes_left:
                return False
        self._writes_left = 0
        for _ in range(3):  # callbacks of the client
            await asyncio.sleep(0)
        self.check()
        return True

    async def _happen(self, event: Event) -> None:
        registry, now = self._registry, self._clock.now
        name, job, rank, _, switch = event
        if switch and name != "hello":
            await self._happen_at(switch, name)
        elif name == "state copied":
            shutil.copytree(self._folder, self._copy)
        elif name in ("controller restarts", "copy put back"):
            raise _KilledError
        elif name == "silent":
            self._clock.now += 1000.0
            for other in registry.jobs():
                for member in other.members.values():
                    if (other.name, member.rank) != (job, rank):
                        registry.heartbeat(member.nonce, self._clock.now)
            registry.sweep(self._clock.now)
        else:
            try:
                if name == "create":
                    registry.create(job, self._plan.jobs[job], 2)
                elif name == "remove":
                    registry.remove(job)
                elif name == "join":
                    registry.join(job, rank, self._plan.jobs[job], now)
                elif name == "leave":
                    registry.leave(registry.get(job).members[rank].nonce)
                else:
                    number = sorted(self._plan.jobs).index(job) * 8 + rank
                    at = self._switches_of(rank).index(switch) if switch in registry.tree.side_by_side else 0
                    nonce = nonce_for(registry.get(job).members[rank].nonce, at)
                    frame = hello_frame(registry.get(job).id, nonce, number)
                    hello = parse_hello(1 + number, frame)
                    assert hello is not None
                    registry.hello(hello, now, switch or self._switches_of(rank)[0])
            except JobServiceError:
                pass  # refused: a situation like the one before

    async def _happen_at(self, switch: str, name: str) -> None:
        reconciler, client = self._reconcilers[switch], self._clients[switch]
        if name == "reconcile":
            await self._reconcile(reconciler)
        elif name == "says HELLO":
            await reconciler._send(self._registry.links.hellos(switch))
        elif name == "stays away":
            reconciler._stop_reset_timer()
            reconciler._reset_jobs()
        elif name == "stream lost":
            client.lose()
        elif name == "restarts":
            self._forget(switch)
            client.restart()
        elif name == "another primary":
            client.other_primary = "another controller"
            assert client.on_primary is not None
            client.on_primary(False)
        elif name == "another primary deletes the entries":
            for held in client.entries.keys() - {self._mark}:
                del client.entries[held]
        else:
            assert name == "another primary ends"
            client.other_primary = None

    async def _reconcile(self, reconciler: SwitchReconciler) -> None:
        """Do what `SwitchReconciler.run` does next."""
        if reconciler.connection.state is State.LOST:
            await reconciler._while_lost()
        if reconciler.connection.state is State.PRIMARY:
            await reconciler._work()
        else:
            await reconciler._try_to_open()

    # ---- the controller's process

    def _start(self) -> None:
        self._store = _Store(self._folder)
        self._store.before_write = lambda: None
        self._store.open()
        self._store.before_write = self._before_write
        names = self._pipeline.names
        tree = Tree(TreeSwitch(switch) for switch in self._config.switches)
        self._registry = Registry(
            self._pipeline.geometry,
            self._store,
            draw_nonce=self._draw,
            draw_secret=self._draw,
            tree=tree,
            links=Links(tree, self._draw),
        )
        self._registry.restore(self._store.jobs(), self._clock.now)
        self._reconcilers = {
            switch.name: SwitchReconciler(
                entry_writer=EntryWriter(
                    self._clients[switch.name], switch, self._pipeline, MacTable(self._config, switch, names)
                ),
                registry=self._registry,
                store=self._store,
                clock=self._clock,
                notifier=Notifier(),
                address="",
                name=switch.name,
            )
            for switch in self._config.switches
        }

    async def end(self) -> None:
        self._writes_left = 0
        for reconciler in self._reconcilers.values():
            await reconciler.close()
        self._store.close()

    def _draw(self) -> int:
        self._drawn += 1
        return self._drawn

    def _before_write(self) -> None:
        if self._writes_left:
            self._writes_left -= 1
            if not self._writes_left:
                raise _KilledError

    def _before_entry(self, switch: str, operation: str, entry: Entry) -> None:
        self._before_write()
        if operation == "insert" and isinstance(entry, TableEntry) and entry.table == self._pipeline.names.admit:
            self._check_admitted(switch, entry)

    def _before_pipeline(self, switch: str) -> None:
        self._before_write()
        self._forget(switch)

    def _forget(self, switch: str) -> None:
        for place in [place for place in self._seen if place[0] == switch]:
            del self._seen[place]

    # ---- properties

    def _check_admitted(self, switch: str, entry: TableEntry) -> None:
        """No slot gets an epoch that its registers may hold, but for the other children of the same grant."""
        if "slot_base" not in entry.params:
            return  # of the parent, which touches no register
        base, count, epoch = (entry.params[name] for name in ("slot_base", "slot_count", "epoch"))
        grant = self._registry.grants(switch).get(int(entry.match["job"]))  # type: ignore[arg-type]
        secrets = () if grant is None else tuple(child.secret for child in grant.children)
        holder = secrets if entry.match["secret"] in secrets else entry.match["secret"]
        for slot in range(base, base + count):
            if self._seen.setdefault((switch, slot, epoch), holder) != holder:
                raise BrokenPropertyError(f"epoch {epoch} is used for slot {slot} of {switch} by a second grant")

    def check(self) -> None:
        """Compare the switches with the registry. Raises BrokenPropertyError."""
        for switch in self._config.switches:
            self._check_switch(switch)
        if several := set(self._registry.tree.side_by_side):
            self._check_side_by_side(several - self._registry._away)

    def _check_side_by_side(self, usable: set[str]) -> None:
        for name, reconciler in self._reconcilers.items():
            state = reconciler.connection.state
            if state in (State.PRIMARY, State.BACKUP) and (state is State.PRIMARY) != (name in usable):
                raise BrokenPropertyError(f"the connection to {name} is {state}, and the usable switches are {usable}")
        for job in self._registry.jobs():
            if not job.active and not usable.issuperset(job.grants):
                raise BrokenPropertyError(f"job {job.name} waits for {list(job.grants)}, and usable are {usable}")
            ready = len(job.members) == job.world_size and all(
                usable.issubset(member.addresses) for member in job.members.values()
            )
            if usable and ready and not job.grants:
                raise BrokenPropertyError(f"job {job.name} has no grants, and its HELLOs are at {usable}")

    def _check_switch(self, switch: SwitchConfig) -> None:
        held = {identity(entry): entry for entry in self._clients[switch.name].entries.values()}
        by_slot: dict[int, int] = {}
        for entry in held.values():
            if isinstance(entry, TableEntry) and entry.action == self._pipeline.names.admit_rank:
                number = int(entry.match["job"])  # type: ignore[arg-type]
                for slot in range(entry.params["slot_base"], entry.params["slot_base"] + entry.params["slot_count"]):
                    if by_slot.setdefault(slot, number) != number:
                        raise BrokenPropertyError(f"the jobs {by_slot[slot]} and {number} share slot {slot}")
        if self._reconcilers[switch.name].unavailable_reason():
            return
        wanted: dict[str, Entry] = {}
        for job in self._registry.jobs():
            if switch.name not in job.grants:
                continue
            replies, admission = self._pipeline.entries(job.grants[switch.name], switch)
            entries = {identity(entry): entry for entry in (*replies, *admission)}
            wanted |= entries
            if job.active and any(held.get(name) != entry for name, entry in entries.items()):
                raise BrokenPropertyError(f"job {job.name} is ACTIVE, and {switch.name} has not all its entries")
        if not self._reconcilers[switch.name]._has_work():
            of_jobs = {name for name, entry in held.items() if self._is_of_a_job(entry)}
            if of_jobs != set(wanted):
                raise BrokenPropertyError(
                    f"at rest {switch.name} has {sorted(of_jobs ^ set(wanted))} too much or too little"
                )

    def _is_of_a_job(self, entry: Entry) -> bool:
        names = self._pipeline.names
        if isinstance(entry, TableEntry):
            return entry.table in (names.admit, names.job_member) and entry.match["job"] != 0
        return isinstance(entry, MulticastGroup) and entry.group_id > 256

    def key(self) -> object:
        """Return what makes two situations equal: all but the numbers that were drawn, and times."""
        numbers = {0: 0}

        def short(value: int) -> int:
            return numbers.setdefault(value, len(numbers))

        jobs = [
            (
                job.name,
                job.id,
                job.slots,
                job.active,
                sorted(job.installed),
                [
                    (name, grant.epoch, [short(child.secret) for child in grant.children])
                    for name, grant in job.grants.items()
                ],
                [(rank, sorted(member.addresses)) for rank, member in sorted(job.members.items())],
            )
            for job in self._registry.jobs()
        ]
        return str((jobs, [self._key_of(switch, short) for switch in self._clients], self._past()))

    def _key_of(self, switch: str, short: Callable[[int], int]) -> object:
        client, reconciler, pipeline = self._clients[switch], self._reconcilers[switch], self._clients[switch].pipeline
        entries = sorted(
            (entry.table, entry.match["job"], short(int(entry.match["secret"])), entry.params["epoch"])  # type: ignore[arg-type]
            if isinstance(entry, TableEntry) and entry.table == self._pipeline.names.admit
            else (identity(entry), entry.params["secret"] if identity(entry) == self._mark else 0)
            for entry in client.entries.values()
        )
        return (
            entries,
            sorted(place for place in self._seen if place[0] == switch),
            pipeline is not None and pipeline.cookie == self._store.era(switch),
            sorted(self._store._rows("SELECT * FROM epochs WHERE switch = ?", switch)),
            reconciler.connection.state,
            reconciler._reset_timer is not None,
            {job: grant.epoch for job, grant in reconciler._installed.items()},
            client.connected,
            client.other_primary,
            switch in self._registry._away,
            [self._registry.links.problem(child) for child in self._registry.tree.children(switch)],
        )

    def _past(self) -> object:
        return (
            sorted(event.name for event in self._events if event.name in self._plan.most),
            sum(event.killed_at > 0 for event in self._events),
        )


@dataclass
class ControllerReport:
    """The counts of a search, and the broken property that it found."""

    situations: int = 0
    sequences: int = 0
    broken: str = ""
    trace: list[str] = field(default_factory=list)


def explore_controller(plan: Plan) -> ControllerReport:
    """Visit all situations of sequences of at most `plan.longest` events, until a property is broken."""
    root = Path(tempfile.mkdtemp(prefix="p4reduce-model-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        return asyncio.run(_explore(plan, root))
    finally:
        shutil.rmtree(root)


async def _explore(plan: Plan, root: Path) -> ControllerReport:
    report, config = ControllerReport(), make_config(root, slots=plan.slots)
    beside = len(plan.tree) > 1 and not any(plan.tree.values())
    config = with_switches_side_by_side(config, plan.tree) if beside else with_tree(config, plan.tree)
    seen: set[object] = set()
    queue = deque([plan.begun])
    while queue:
        events = queue.popleft()
        found = await _played(plan, config, root, events, report)
        if report.broken:
            return report
        if found is None or found[0] in seen:
            continue
        seen.add(found[0])
        report.situations = len(seen)
        if len(events) < len(plan.begun) + plan.longest:
            queue.extend((*events, event) for event in found[1])
    return report


async def _played(
    plan: Plan, config: Config, root: Path, events: Sequence[Event], report: ControllerReport
) -> tuple[object, list[Event]] | None:
    """Play a sequence; return the situation and what can happen in it, None if its last event was none."""
    folder = root / "played"
    shutil.rmtree(folder, ignore_errors=True)
    situation = Situation(folder, config, plan)
    report.sequences += 1
    try:
        for event in events:
            if not await situation.happen(event):
                return None
        return situation.key(), situation.events()
    except BrokenPropertyError as error:
        report.broken, report.trace = str(error), [str(event) for event in events]
        return None
    finally:
        await situation.end()

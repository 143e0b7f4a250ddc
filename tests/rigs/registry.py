"""For tests of the registry: a store in memory, registries of several switches, and what arrives there."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

from p4reduce_contracts.artifacts import SwitchGeometry
from p4reduce_contracts.jobs.errors import StoreError
from p4reduce_contracts.wire.hello import nonce_for
from p4reduce_controller.registry.hello import Address, Hello, parse_hello
from p4reduce_controller.registry.job import Job, Member
from p4reduce_controller.registry.links import Links
from p4reduce_controller.registry.registry import Registry
from p4reduce_controller.registry.slots import SlotRange
from p4reduce_controller.registry.tree import Tree
from p4reduce_controller.service import saved
from rigs.fake_switch_client import UPLINK


def place(number: int) -> Address:
    return Address(ingress_port=number, mac=0x020000000000 + number, ip=0x0A000000 + number, udp_port=4000)


class MemoryJobStore:
    """Draws epochs 1, 2, ...; every job as text, as it was saved last. `failing`: the disk takes nothing."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.ended_texts: dict[str, str] = {}
        self.epochs = itertools.count(1)
        self.failing = False

    def draw_epoch(self, slots: SlotRange, in_use: Collection[int], switches: Collection[str] = ()) -> int:
        self._check()
        return next(self.epochs)

    def save(self, job: Job) -> None:
        self._check()
        self.texts[job.name] = saved.to_text(job)

    def end(self, job: Job) -> None:
        self._check()
        del self.texts[job.name]
        self.ended_texts[job.name] = saved.to_text(job.as_ended())

    def save_ended(self, job: Job) -> None:
        self._check()
        self.ended_texts[job.name] = saved.to_text(job.as_ended())

    def ended(self, name: str = "") -> list[tuple[float, Job]]:
        return [(1.0, saved.from_text(text)) for key, text in self.ended_texts.items() if name in ("", key)]

    def jobs(self) -> list[Job]:
        return [saved.from_text(text) for _, text in sorted(self.texts.items())]

    def _check(self) -> None:
        if self.failing:
            raise StoreError("the disk is full")


def make_registry(tree: Tree, store: MemoryJobStore | None = None, slots: int = 64) -> Registry:
    """Return a registry of these switches, whose nonces and secrets are 1000, 1001, ..."""
    numbers = itertools.count(1000)
    draw = lambda: next(numbers)  # noqa: E731
    geometry = SwitchGeometry(columns=8, block_words=32, slots=slots)
    return Registry(geometry, store or MemoryJobStore(), 10.0, draw, draw, tree=tree, links=Links(tree, draw))


def hello(registry: Registry, job: Job, member: Member, switch: str, address: Address) -> bool:
    """The HELLO that a rank sends to a switch arrives there."""
    beside = registry.tree.side_by_side
    nonce = nonce_for(member.nonce, beside.index(switch) if switch in beside else 0)
    return registry.hello(Hello(job.id, nonce, address), 0.0, switch)


def join(registry: Registry, name: str, at: Sequence[Sequence[str]], switches: int = 0) -> Job:
    """Create a job of 4 slots; all its ranks join it, and the HELLOs of rank n arrive at the switches at[n]."""
    job = registry.create(name, len(at), 4, switches=switches)
    for rank, names in enumerate(at):
        member = registry.join(name, rank, len(at), 0.0)
        for switch in names:
            hello(registry, job, member, switch, place(1 + rank))
    return job


def install(registry: Registry, job: Job) -> Job:
    """All switches take the job's entries."""
    assert job.grants, registry.missing(job)
    for grant in list(job.grants.values()):
        assert not job.active
        registry.installed(grant, 0.0)
    assert job.active
    return job


def parent_port(child: str) -> int:
    return 100 + int(child[-1])


def send_link_hellos(registry: Registry, switch: str) -> None:
    """The HELLOs that `switch` has to send arrive at the other ends of its cables."""
    for port, frame in registry.links.hellos(switch):
        if port == UPLINK:
            receiver, arrives_at = registry.tree.parent(switch), parent_port(switch)
        else:
            (receiver,) = (child for child in registry.tree.children(switch) if parent_port(child) == port)
            arrives_at = UPLINK
        arrived = parse_hello(arrives_at, frame)
        assert arrived is not None
        registry.hello(arrived, 0.0, receiver)


def find_links(registry: Registry) -> None:
    for _ in range(2):
        for switch in registry.tree.switches:
            send_link_hellos(registry, switch)

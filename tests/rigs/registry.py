"""For tests of the registry: a store in memory, registries of several switches, and what arrives there."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import ClassVar

from p4reduce_contracts.artifacts import SwitchGeometry
from p4reduce_contracts.wire.hello import nonce_for
from p4reduce_controller.registry.hello import Address, Hello, parse_hello
from p4reduce_controller.registry.job import Job, Member
from p4reduce_controller.registry.links import Links
from p4reduce_controller.registry.registry import Registry
from p4reduce_controller.registry.tree import Tree
from p4reduce_controller.service.store import IN_MEMORY, Store
from rigs.fake_switch_client import UPLINK, Places


def place(number: int) -> Address:
    return Address(ingress_port=number, mac=0x020000000000 + number, ip=0x0A000000 + number, udp_port=4000)


class MemoryStore(Store):
    """The controller's store, in memory alone. A fixture closes those of a test."""

    opened: ClassVar[list[Store]] = []

    def __init__(self) -> None:
        super().__init__(Path(IN_MEMORY))
        self.open()
        self.opened.append(self)

    def fail(self, fails: bool) -> None:
        """Let every write fail from now on, or none."""
        self._opened().execute(f"PRAGMA query_only = {fails}")


def make_registry(tree: Tree, store: MemoryStore | None = None, slots: int = 64) -> Registry:
    """Return a registry of these switches, whose nonces and secrets are 1000, 1001, ..."""
    numbers = itertools.count(1000)
    draw = lambda: next(numbers)  # noqa: E731
    geometry = SwitchGeometry(columns=8, block_words=32, slots=slots)
    return Registry(geometry, store or MemoryStore(), 10.0, draw, draw, tree=tree, links=Links(tree, draw))


def hello(registry: Registry, job: Job, member: Member, switch: str, address: Address) -> bool:
    """The HELLO that a rank sends to a switch arrives there."""
    beside = registry.tree.side_by_side
    nonce = nonce_for(member.nonce, beside.index(switch) if switch in beside else 0)
    return registry.hello(Hello(job.id, nonce, address), 0.0, switch)


def join(registry: Registry, name: str, at: Places, switches: int = 0) -> Job:
    """Create a job of 4 slots; all its ranks join it, and the HELLOs of rank n arrive at the switches at[n]."""
    job = registry.create(name, len(at), 4, switches=switches)
    for rank, names in enumerate(at):
        member = registry.join(name, rank, len(at), 0.0)
        for switch in (names,) if isinstance(names, str) else names:
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

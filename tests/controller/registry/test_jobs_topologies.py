"""What holds for a job over one switch, a tree of switches and switches side by side."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from p4reduce_contracts.jobs.errors import MemberResetError
from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_controller.config import Config, SwitchConfig
from p4reduce_controller.registry.job import Job
from p4reduce_controller.registry.registry import Registry
from p4reduce_controller.registry.tree import Tree, TreeSwitch
from p4reduce_controller.service import saved
from rigs.fake_switch_client import RACKS, with_switches_side_by_side, with_tree
from rigs.registry import MemoryStore, find_links, install, join, make_registry, place

Switches = tuple[SwitchConfig, ...]


@dataclass(frozen=True)
class Topology:
    """Switches, and a job over them."""

    switches: Switches
    at: tuple[tuple[str, ...], ...]
    """For each rank of the job, the switches at which its HELLOs arrive."""
    grants: tuple[str, ...]
    """The switches that sum for it, in order."""
    lost: str
    anew: tuple[Switches, ...]
    """Configurations with which a job that was saved cannot go on."""
    most: int = 0
    """Of how many switches side by side the job has slots; 0: all."""

    def registry(self, store: MemoryStore | None = None, switches: Switches = ()) -> Registry:
        return make_registry(Tree(map(TreeSwitch, switches or self.switches)), store)

    def join(self, registry: Registry) -> Job:
        """Create the job; all its ranks join it and say HELLO, once the links between switches are found."""
        find_links(registry)
        return join(registry, "train", self.at, self.most)

    def form(self, registry: Registry) -> Job:
        return install(registry, self.join(registry))


def tree(parents: dict[str, str]) -> Switches:
    return with_tree(Config(), parents).switches


def beside(names: str) -> Switches:
    return with_switches_side_by_side(Config(), names).switches


ONE, LEAF = Config().switches, tree(RACKS)[1]
TOPOLOGIES = {
    "one switch": Topology(
        ONE, ((ONLY_SWITCH,), (ONLY_SWITCH,)), (ONLY_SWITCH,), ONLY_SWITCH, ((replace(ONE[0], name="other"),),)
    ),
    "tree": Topology(
        tree(RACKS),
        (("leaf1",), ("root",), ("leaf1",)),
        ("root", "leaf1"),
        "leaf1",
        (tree({"root": "", "leaf2": "root"}), tree({"leaf1": "", "root": "leaf1"})),
    ),
    "side by side": Topology(
        beside("abc"),
        (tuple("abc"),) * 2,
        ("b", "c"),
        "b",
        (beside("ac"), (*beside("abc"), replace(LEAF, parent="c"))),
        2,
    ),
}
EACH = pytest.mark.parametrize("topology", TOPOLOGIES.values(), ids=TOPOLOGIES)


@EACH
def test_a_job_is_saved_and_restored(topology: Topology) -> None:
    store = MemoryStore()
    before = topology.form(topology.registry(store))
    again = topology.registry(store)
    again.restore(store.jobs(), 0.0)
    job = again.get("train")
    assert job.active and job.grants == before.grants and tuple(job.grants) == topology.grants
    assert (job.tree, job.switches) == (before.tree, before.switches)
    for rank, switches in enumerate(topology.at):
        assert job.paths(rank) == before.paths(rank)
        assert job.members[rank].addresses == dict.fromkeys(switches, place(1 + rank))


@pytest.mark.parametrize(
    ("topology", "switches"),
    [(topology, switches) for topology in TOPOLOGIES.values() for switches in topology.anew],
    ids=[f"{name}, {n}" for name, topology in TOPOLOGIES.items() for n in range(len(topology.anew))],
)
def test_a_job_whose_switches_were_configured_anew_is_reset(topology: Topology, switches: Switches) -> None:
    store = MemoryStore()
    nonce = topology.form(topology.registry(store)).members[0].nonce
    again = topology.registry(store, switches)
    again.restore(store.jobs(), 0.0)
    assert not again.get("train").active
    assert again.heartbeat(nonce, 1.0) == "the controller's switches were configured anew"


@EACH
@pytest.mark.parametrize("active", [False, True])
def test_a_lost_switch_takes_back_the_grants_of_its_jobs_and_resets_them(topology: Topology, active: bool) -> None:
    registry = topology.registry()
    job = topology.form(registry) if active else topology.join(registry)
    taken_back = dict(job.grants)
    registry.switch_lost("restarted", switch=topology.lost)
    assert active is (job.last_reset == "restarted")
    for member in job.members.values() if active else ():
        with pytest.raises(MemberResetError, match="restarted"):
            registry.lease(member.nonce)
    registry.can_use(topology.lost, usable=False)
    for grant in taken_back.values():
        registry.installed(grant, 0.0)
    assert not job.active and tuple(taken_back) == topology.grants


FOREIGN_PARENT = '{"switch": "root", "address": {"ingress_port": 1, "mac": 2, "ip": 3, "udp_port": 4}, "secret": 1}'


@pytest.mark.fault("a saved grant that does not fit its job: StoreError that names the position")
@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("one switch", '"epoch": 1', '"epoch": 0', r"grants\[\.\.\.\]\.epoch"),
        ("one switch", '"train", "epoch"', '"other", "epoch"', "another switch, id, name or slots"),
        ("one switch", '0, "count": 4}, "children"', '1, "count": 4}, "children"', "another switch, id, name or slots"),
        ("one switch", '"switch": "switch"', '"switch": "other"', "another switch"),
        ("one switch", r'"children": \[.*\], "parent"', '"children": [], "parent"', "its grants others"),
        ("one switch", '"parent": null', f'"parent": {FOREIGN_PARENT}', "root"),
        (
            "one switch",
            r', {"rank": 1, .*\], "grants"',
            '], "grants"',
            r"2 ranks and grants, but only the members \[0\]",
        ),
        ("tree", '"switch": "leaf1"}', '"switch": "leaf2"}', "child leaf2 of job.grants.root. is not below it"),
        (
            "tree",
            r'"ranks": \[0, 2\]',
            '"ranks": [0]',
            "a child of job.grants.root. has other ranks than are behind it",
        ),
        ("tree", '"target": ""', '"target": "", "rank": 0', "rank twice"),
        ("tree", '"parent": {"switch": "root"', '"parent": {"switch": "no"', "leaf1 of job.grants.root. is not below"),
        ("side by side", r'"ranks": \[1\]', '"ranks": [0]', "2 ranks, and its grants others"),
        ("side by side", '"b": {"ingress', '"d": {"ingress', "is a child of switch 'b', and has no address"),
        ("side by side", '"count": 4', '"count": 32768', "32768 slots of each of 2 switches"),
    ],
)
def test_saved_grants_that_do_not_fit_the_job_or_each_other_are_refused(
    name: str, old: str, new: str, message: str
) -> None:
    topology = TOPOLOGIES[name]
    text = saved.to_text(topology.form(topology.registry()))
    changed = re.sub(old, new, text)
    assert changed != text
    with pytest.raises(ValueError, match=message):
        saved.from_text(changed)

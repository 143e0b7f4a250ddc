"""Jobs whose ranks are at several switches: placement, links, grants, and what the loss of a switch resets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import pytest

from p4reduce_contracts.jobs.answers import Count
from p4reduce_contracts.jobs.errors import MemberResetError
from p4reduce_contracts.jobs.lease import Level
from p4reduce_controller.config import Config, SwitchConfig
from p4reduce_controller.registry.hello import Hello, parse_hello
from p4reduce_controller.registry.job import Job
from p4reduce_controller.registry.links import SILENT_AFTER, Links
from p4reduce_controller.registry.registry import Cause, Registry
from p4reduce_controller.registry.tree import PlacementError, Tree, TreeSwitch
from rigs.fake_switch_client import RACKS, UPLINK, with_tree
from rigs.registry import MemoryStore, find_links, install, join, parent_port, place, send_link_hellos
from rigs.registry import make_registry as registry_of


def switches(parents: Mapping[str, str]) -> tuple[SwitchConfig, ...]:
    return with_tree(Config(), parents).switches


def make_tree(parents: Mapping[str, str] = RACKS, max_children: int = 32) -> Tree:
    return Tree(TreeSwitch(switch, max_children) for switch in switches(parents))


def make_registry(parents: Mapping[str, str] = RACKS, store: MemoryStore | None = None) -> Registry:
    return registry_of(make_tree(parents), store)


def send_link_hello(registry: Registry, sender: str, receiver: str, port: int) -> None:
    """The HELLO that `sender` sends to `receiver`, or else out of its uplink port, arrives there by this port."""
    out = registry.links.parent_port(receiver) if registry.tree.parent(receiver) == sender else UPLINK
    hello = parse_hello(port, dict(registry.links.hellos(sender))[out or 0])
    assert hello is not None
    registry.hello(hello, 0.0, receiver)


def move_link(registry: Registry, child: str, port: int) -> None:
    """The HELLO of a switch arrives by another port of its parent, and one comes back from there."""
    parent = registry.tree.parent(child)
    send_link_hello(registry, child, parent, port)
    assert registry.links.parent_port(child) == port
    send_link_hello(registry, parent, child, UPLINK)


def form(registry: Registry, name: str, at: Sequence[str]) -> Job:
    return install(registry, join(registry, name, at))


@pytest.fixture
def registry() -> Registry:
    """A registry of two racks, whose links are found."""
    made = make_registry()
    find_links(made)
    return made


# ---- placement


def test_ranks_of_one_rack_need_only_their_switch() -> None:
    assert make_tree().place({0: "leaf2", 1: "leaf2"}) == {"leaf2": Level("leaf2", ((0,), (1,)))}


def test_the_children_are_ordered_by_their_smallest_ranks() -> None:
    placed = make_tree().place({0: "leaf2", 1: "leaf1", 2: "root", 3: "leaf2", 4: "leaf1"})
    assert list(placed) == ["root", "leaf1", "leaf2"]
    assert placed["root"] == Level("root", ((0, 3), (1, 4), (2,)))
    assert placed["leaf2"] == Level("leaf2", ((0,), (3,)), "root")


def test_the_root_is_the_lowest_switch_above_all_ranks_and_paths_lead_to_it() -> None:
    tree = make_tree({"top": "", "pod1": "top", "pod2": "top", "leaf1": "pod1", "leaf2": "pod1", "leaf3": "pod2"})
    assert tree.place({0: "leaf1", 1: "leaf2"}) == {
        "pod1": Level("pod1", ((0,), (1,))),
        "leaf1": Level("leaf1", ((0,),), "pod1"),
        "leaf2": Level("leaf2", ((1,),), "pod1"),
    }
    placed = tree.place({0: "leaf3", 1: "pod1"})
    assert list(placed) == ["top", "pod1", "pod2", "leaf3"]
    assert placed["pod2"] == Level("pod2", ((0,),), "top")
    assert tree.place({0: "leaf1", 1: "pod1"})["pod1"] == Level("pod1", ((0,), (1,)))


@pytest.mark.parametrize(
    ("tree", "places", "message"),
    [
        (make_tree({"a": "", "b": ""}), {0: "a", 1: "b"}, "the switches a, b, which are in separate trees"),
        (make_tree(), dict.fromkeys(range(33), "leaf1"), "switch leaf1 would have 33 children of the job"),
        (make_tree(max_children=2), {0: "root", 1: "leaf1", 2: "leaf2"}, "root would have 3 .* at most 2"),
    ],
)
def test_ranks_that_cannot_be_placed(tree: Tree, places: dict[int, str], message: str) -> None:
    with pytest.raises(PlacementError, match=message):
        tree.place(places)


def test_32_racks_of_32_ranks_fit() -> None:
    tree = make_tree({"root": "", **{f"leaf{n}": "root" for n in range(32)}})
    placed = tree.place({rank: f"leaf{rank // 32}" for rank in range(1024)})
    assert {len(level.children) for level in placed.values()} == {32}
    assert placed["root"].ranks == tuple(range(1024))


# ---- grants


def test_the_grants_of_two_racks(registry: Registry) -> None:
    root, leaf1, leaf2 = join(registry, "train", ["leaf1", "leaf1", "leaf2", "leaf2"]).grants.values()
    assert (root.switch, leaf1.switch, leaf2.switch) == ("root", "leaf1", "leaf2")
    assert len({(grant.job_id, grant.epoch, grant.slots) for grant in (root, leaf1, leaf2)}) == 1
    assert root.parent is None
    assert [(child.switch, child.ranks) for child in root.children] == [("leaf1", (0, 1)), ("leaf2", (2, 3))]
    assert [child.address for child in leaf2.children] == [place(3), place(4)]
    for child, leaf in zip(root.children, (leaf1, leaf2), strict=True):
        assert leaf.parent is not None
        assert child.secret == leaf.parent.secret
        assert (child.address.ingress_port, leaf.parent.address.ingress_port) == (parent_port(leaf.switch), UPLINK)
        trunk, up = registry.tree.switches[leaf.switch].config, registry.tree.switches["root"].config
        assert (child.address.ip, child.address.mac) == (trunk.trunk_ip_value, trunk.trunk_mac_value)
        assert (leaf.parent.address.ip, leaf.parent.address.mac) == (up.trunk_ip_value, up.trunk_mac_value)
    secrets = [child.secret for grant in (root, leaf1, leaf2) for child in grant.children]
    assert len(set(secrets)) == 6


def test_a_job_is_active_when_every_switch_of_its_tree_has_its_entries(registry: Registry) -> None:
    job = join(registry, "train", ["leaf1", "root"])
    a = job.members[0]
    assert [*registry.grants("root"), *registry.grants("leaf1")] == [job.id, job.id]
    assert registry.grants("leaf2") == {}
    registry.installed(job.grants["root"], 0.0)
    assert registry.lease(a.nonce) is None
    assert job.missing() == "every rank is there, but these switches have not taken the job's entries: leaf1"
    registry.installed(job.grants["leaf1"], 0.0)
    assert registry.lease(a.nonce) == (job, a)
    leaf1, root = Level("leaf1", ((0,),), "root"), Level("root", ((0,), (1,)))
    at_leaf1, at_root = job.grants["leaf1"].children[0].secret, job.grants["root"].children[1].secret
    assert (job.paths(0), job.paths(1)) == ([(at_leaf1, [leaf1, root])], [(at_root, [root])])
    assert job.tree == (root, leaf1)


@pytest.mark.fault(
    "one switch of a tree refuses a job's entries: the job is reset: each rank that waits for its lease gets "
    "MemberResetError with the switch's refusal, and all switches' entries of the job are deleted"
)
def test_entries_that_one_switch_refuses_are_taken_back_from_all(registry: Registry) -> None:
    job = join(registry, "train", ["leaf1", "root"])
    a = job.members[0]
    registry.installed(job.grants["root"], 0.0)
    registry.install_failed(job.grants["leaf1"], "the switch refused the entries")
    assert [registry.grants(switch) for switch in ("root", "leaf1")] == [{}, {}]
    with pytest.raises(MemberResetError, match="the switch refused the entries"):
        registry.lease(a.nonce)


def test_ranks_that_cannot_be_placed_wait_and_are_told_why() -> None:
    registry = make_registry({"a": "", "b": ""})
    job = join(registry, "train", ["a", "b"])
    assert "separate trees" in job.missing()
    registry.sweep(1.0)
    assert not job.grants


def test_one_switch_takes_no_job_of_33_ranks_and_two_might() -> None:
    assert make_registry({"a": ""}).tree.max_world_size == 32
    assert make_registry({"a": "", "b": "a"}).tree.max_world_size == 64


# ---- links


@pytest.mark.fault(
    "a link between switches is not there, or leads to another switch or port: `join` and `controller switches` name "
    "the HELLO that did not arrive, or where it did; the job forms when the link is there"
)
def test_a_job_waits_until_its_links_are_known() -> None:
    registry = make_registry()
    form(registry, "flat", ["leaf1", "leaf1"])  # it needs none
    job = join(registry, "train", ["leaf1", "leaf2"])
    up = "the HELLO that leaf1 sends out of port 99 never arrived at root"
    assert job.missing().startswith(f"the link from leaf1 to root was not seen: {up}; the link from leaf2")
    send_link_hellos(registry, "leaf1")
    registry.sweep(1.0)
    assert job.missing().startswith(
        "the link from leaf1 to root was not seen: the HELLO that root sends out of port 101 never arrived at leaf1"
    )
    send_link_hellos(registry, "root")
    assert not job.grants
    send_link_hellos(registry, "leaf2")
    send_link_hellos(registry, "root")
    assert list(job.grants) == ["root", "leaf1", "leaf2"], "as soon as the last link is known"
    version = registry.version
    assert [port for switch in RACKS for port, _ in registry.links.hellos(switch)] == [101, 102, UPLINK, UPLINK]
    find_links(registry)
    assert registry.version == version, "a HELLO that comes as before changes nothing"


def test_a_hello_at_another_switch_or_port_is_the_links_problem() -> None:
    registry = make_registry()
    assert not registry.hello(Hello(0, 1 << 60, place(1)), 0.0, "root"), "an unknown nonce"
    send_link_hello(registry, "leaf1", "leaf2", 7)
    assert registry.links.problem("leaf1").endswith("the HELLO from leaf1 to root arrived at leaf2, by its port 7")
    send_link_hellos(registry, "leaf1")
    send_link_hello(registry, "root", "leaf1", 5)
    assert "arrived at leaf1 by port 5, and the configuration says uplink_port = 99" in registry.links.problem("leaf1")
    assert registry.links.link("leaf1") is None
    send_link_hellos(registry, "root")
    assert registry.links.problem("leaf1") is None


def test_hellos_go_to_the_configured_port_of_the_parent_and_to_where_the_childs_came_from() -> None:
    """A switch with UDP peers sends a frame to a peer only if it is addressed to that peer's socket.

    Between the switches may be a NAT, so the child's address need not be that of the configuration.
    """
    root, leaf, _ = switches(RACKS)
    tree = Tree(TreeSwitch(each) for each in (msgspec.structs.replace(root, udp_port=4444), leaf))
    links = Links(tree)
    ((port, up),) = links.hellos("leaf1")
    assert (port, up[36:38]) == (UPLINK, (4444).to_bytes(2, "big"))
    hello = parse_hello(101, up)
    assert hello is not None
    child = replace(place(101), udp_port=5555)
    links.arrived(replace(hello, address=child), "root")
    ((port, down),) = links.hellos("root")
    assert (port, down[36:38]) == (101, (5555).to_bytes(2, "big"))
    assert (down[:6], down[30:34]) == (child.mac.to_bytes(6, "big"), child.ip.to_bytes(4, "big"))


def test_a_link_that_leads_elsewhere_later_resets_the_jobs_that_use_it(registry: Registry) -> None:
    form(registry, "tree", ["leaf1", "root"])
    form(registry, "flat", ["leaf1"])
    registry.switch_lost("restarted", [job.id for job in registry.jobs()], "leaf1")
    find_links(registry)
    assert all(job.active for job in registry.jobs()), "it is the same link again"
    registry.switch_lost("restarted", [job.id for job in registry.jobs()], "leaf1")
    move_link(registry, "leaf1", 103)
    assert registry.get("tree").last_reset == "the link from leaf1 to root has changed"
    assert registry.resets == {Cause.LINK_CHANGED: 1}
    assert registry.get("flat").active


def test_a_link_that_is_at_another_port_of_the_parent_is_looked_for_anew(registry: Registry) -> None:
    """A parent with UDP peers may have given the port of a switch without jobs to another peer."""
    form(registry, "tree", ["leaf1", "root"])
    form(registry, "other", ["leaf2", "root"])
    ((_, old),) = registry.links.hellos("leaf1")
    moved = parse_hello(103, old)
    assert moved is not None
    registry.hello(moved, 0.0, "leaf2")
    assert registry.links.link("leaf1") is not None, "a copy that goes astray is no other link"
    registry.hello(moved, 0.0, "root")
    assert registry.links.link("leaf1") is None
    registry.hello(moved, 0.0, "root")
    assert registry.links.parent_port("leaf1") is None, "it counts with another nonce only"
    assert registry.get("tree").active
    move_link(registry, "leaf1", 103)
    assert registry.get("tree").last_reset == "the link from leaf1 to root has changed"
    assert registry.get("other").active


@pytest.mark.fault(
    "a link between switches loses all frames, up or down: `controller switches`, the log and "
    "`p4reduce_controller_link_up` report which HELLOs do not arrive; ACTIVE jobs are not reset"
)
def test_a_link_whose_hellos_do_not_arrive_any_more_is_reported_and_gets_no_new_job(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    form(registry, "train", ["leaf1", "root"])
    for _ in range(SILENT_AFTER - 1):
        registry.link_hellos_sent("leaf1")
        registry.link_hellos_sent("root")
    send_link_hellos(registry, "leaf1")
    for _ in range(SILENT_AFTER - 1):
        registry.link_hellos_sent("leaf1")
    assert registry.links.problem("leaf1") is None, "one has arrived in between"
    version = registry.version
    registry.link_hellos_sent("leaf1")
    why = (
        "the link from leaf1 to root is silent: the HELLO that leaf1 sends out of port 99 does not arrive at root any "
        "more"
    )
    assert registry.links.problem("leaf1") == why and registry.version > version
    assert registry.links.problem("leaf2") is None
    registry.link_hellos_sent("leaf1")
    assert sum("link silent" in record.message for record in caplog.records) == 1
    assert registry.get("train").active
    new = join(registry, "new", ["leaf1", "root"])
    assert not new.grants and new.missing() == why
    send_link_hellos(registry, "leaf1")
    assert registry.links.problem("leaf1") is None and new.grants
    assert registry.get("train").active, "it is the same link as before"


def test_a_link_that_carries_frames_up_and_none_down_is_silent(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    form(registry, "train", ["leaf1", "root"])
    for _ in range(SILENT_AFTER):
        for switch in RACKS:
            registry.link_hellos_sent(switch)
        for leaf in ("leaf1", "leaf2"):
            send_link_hello(registry, leaf, "root", parent_port(leaf))
        send_link_hello(registry, "root", "leaf2", UPLINK)
    down = "the HELLO that root sends out of port 101 does not arrive at leaf1 any more"
    assert registry.links.problem("leaf1") == f"the link from leaf1 to root is silent: {down}"
    assert registry.links.problem("leaf2") is None
    registry.link_hellos_sent("leaf1")
    for _ in range(SILENT_AFTER):
        registry.link_hellos_sent("leaf1")
    up = "the HELLO that leaf1 sends out of port 99 does not arrive at root any more"
    assert registry.links.problem("leaf1") == f"the link from leaf1 to root is silent: {up}, and {down}"
    assert sum("link silent" in record.message for record in caplog.records) == 2, "once for each way"
    assert registry.get("train").active
    caplog.clear()
    caplog.set_level("INFO")
    send_link_hello(registry, "leaf1", "root", parent_port("leaf1"))
    assert registry.links.problem("leaf1").endswith(f"silent: {down}") and not caplog.records
    send_link_hello(registry, "root", "leaf1", UPLINK)
    assert registry.links.problem("leaf1") is None and "link found" in caplog.text
    assert registry.get("train").active, "it is the same link as before"


def first_ports(registry: Registry) -> dict[str, list[int]]:
    """Return the ports out of which each switch sends a first HELLO now, by switch."""
    found = {switch: [port for port, _ in registry.links.first_hellos(switch)] for switch in RACKS}
    return {switch: ports for switch, ports in found.items() if ports}


def test_first_hellos_of_a_link_are_sent_once_when_its_switch_is_there_and_when_one_came_up() -> None:
    registry = make_registry()
    assert first_ports(registry) == {"leaf1": [UPLINK], "leaf2": [UPLINK]}
    assert first_ports(registry) == {}, "the further ones once in each period"
    send_link_hellos(registry, "leaf2")
    assert first_ports(registry) == {"root": [102]}
    find_links(registry)
    assert first_ports(registry) == {"root": [101]}
    registry.switch_lost("restarted", switch="root")
    assert first_ports(registry) == {"leaf1": [UPLINK], "leaf2": [UPLINK]}
    find_links(registry)
    first_ports(registry)
    registry.switch_lost("restarted", switch="leaf1")
    assert first_ports(registry) == {"leaf1": [UPLINK]}


def test_copies_of_a_hello_that_come_by_two_ports_cause_no_further_ones_at_once(registry: Registry) -> None:
    """Each would be copied as well."""
    first_ports(registry)
    send_link_hello(registry, "leaf1", "root", 103)
    assert registry.links.link("leaf1") is None
    assert first_ports(registry) == {}
    move_link(registry, "leaf1", 103)
    assert registry.links.link("leaf1") is not None


def test_hellos_that_arrive_at_a_switch_of_another_primary_are_not_missed(registry: Registry) -> None:
    registry.links.primary("root", is_primary=False)
    for _ in range(SILENT_AFTER):
        registry.link_hellos_sent("leaf1")
    assert registry.links.problem("leaf1") is None
    registry.links.lost("root")
    assert "was not seen: another controller is primary for root" in registry.links.problem("leaf1")
    registry.links.primary("root", is_primary=True)
    assert "was not seen: the HELLO that leaf1 sends" in registry.links.problem("leaf1")
    find_links(registry)
    for _ in range(SILENT_AFTER):
        registry.link_hellos_sent("leaf1")
    assert "is silent" in registry.links.problem("leaf1")


@pytest.mark.fault(
    "a cable between switches is cut, or moved to another switch, while both stay connected: `controller switches`, "
    "the log and `p4reduce_controller_link_up` report it; new jobs wait for it, ACTIVE ones are not reset"
)
def test_a_cable_that_was_moved_to_another_switch_is_named(registry: Registry) -> None:
    for _ in range(SILENT_AFTER):
        send_link_hello(registry, "leaf1", "leaf2", 7)
        registry.link_hellos_sent("leaf1")
    assert registry.links.problem("leaf1") == (
        "the link from leaf1 to root is silent: the HELLO from leaf1 to root arrived at leaf2, by its port 7"
    )
    send_link_hello(registry, "leaf1", "root", 103)
    move_link(registry, "leaf1", 103)
    assert (registry.links.problem("leaf1"), registry.links.parent_port("leaf1")) == (None, 103)


# ---- loss of a switch


@pytest.mark.fault("one switch of a tree restarts: the jobs whose tree has it are reset; others go on")
def test_a_lost_switch_resets_just_the_jobs_whose_tree_has_it(registry: Registry) -> None:
    for name, at in (("both", ["leaf1", "leaf2"]), ("one", ["leaf1", "leaf1"]), ("two", ["leaf2"]), ("top", ["root"])):
        members = dict(form(registry, name, at).members)
    registry.switch_lost("leaf1 restarted", switch="leaf1")
    assert {job.name: job.active for job in registry.jobs()} == {"both": False, "one": False, "two": True, "top": True}
    assert registry.get("both").last_reset == "leaf1 restarted"
    assert registry.grants("root").keys() == {registry.get("top").id}
    registry.switch_lost("root restarted", switch="root")
    with pytest.raises(MemberResetError, match="root restarted"):
        registry.lease(members[0].nonce)
    assert registry.get("two").active


def test_a_lost_switch_takes_the_hellos_of_forming_ranks_there(registry: Registry) -> None:
    job = join(registry, "train", ["leaf1", "leaf2", "leaf2"])
    members, epoch = list(job.members.values()), job.grants["leaf1"].epoch
    registry.switch_lost("restarted", switch="leaf1")
    assert not job.grants
    assert [list(member.addresses) for member in members] == [[], ["leaf2"], ["leaf2"]]
    assert "no HELLO of rank 0 came" in job.missing()
    registry.hello(Hello(job.id, members[0].nonce, place(9)), 1.0, "leaf1")
    assert "the link from leaf1 to root was not seen" in job.missing()
    find_links(registry)
    assert job.grants["leaf1"].epoch != epoch


def test_a_forming_job_at_other_switches_is_left_alone_and_counts_begin_anew_at_the_lost_one(
    registry: Registry,
) -> None:
    elsewhere, job = join(registry, "elsewhere", ["leaf2"]), join(registry, "train", ["leaf1", "root"])
    for grant in (*elsewhere.grants.values(), *job.grants.values()):
        registry.count_from(grant, {"results": Count(1, 2)})
    registry.switch_lost("restarted", switch="leaf1")
    assert list(elsewhere.grants) == list(elsewhere.counted_from) == ["leaf2"]
    assert list(job.counted_from) == ["root"]


def test_a_rank_whose_switch_is_no_longer_configured_is_told_what_is_missing() -> None:
    store = MemoryStore()
    registry = make_registry(store=store)
    registry.create("train", 2)
    registry.join("train", 0, 2, 0.0, target="leaf2")
    again = make_registry({"root": ""}, store)
    again.restore(store.jobs(), 0.0)
    told = "rank 1 did not join; no HELLO of rank 0 came through the switch"
    assert again.missing(again.get("train")) == told

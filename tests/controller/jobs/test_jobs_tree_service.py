"""The job service over a tree of switches in memory: links, leases, entries, and switches that come and go."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path

import pytest
from msgspec.structs import replace

from p4reduce_contracts.jobs.answers import WaitingSlot
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import InvalidRequestError, LeaseTimeoutError, MemberResetError, SwitchAwayError
from p4reduce_contracts.jobs.lease import Level
from p4reduce_controller.config import Config
from p4reduce_controller.jobs import reconciler
from p4reduce_controller.jobs.links import SILENT_AFTER
from p4reduce_controller.p4names import V1MODEL
from p4reduce_controller.p4runtime.entries import MulticastGroup, TableEntry
from p4reduce_controller.service import Controller
from p4reduce_runtime.p4runtime.errors import SwitchUnreachableError
from p4reduce_runtime.settings import ConfigError
from rigs.fake_switch_client import (
    LIMIT_S,
    OWN_TABLES,
    RACKS,
    UPLINK,
    FakeSwitchClient,
    Running,
    form_at,
    join_at,
    make_config,
    serving,
    with_tree,
)

pytestmark = pytest.mark.processes

AT = ["leaf1", "leaf1", "leaf2", "leaf2"]
OWN = OWN_TABLES | {"switch_address": 2, "own_ip": 2, "own_mac": 2}
"""Of a switch with an address for workers and one for other switches."""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return with_tree(make_config(tmp_path), RACKS)


@pytest.fixture
def running(config: Config, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(reconciler, "_LINK_HELLO_S", 0.02)
    with serving(config) as one:
        yield one


@pytest.fixture
def client(running: Running) -> Iterator[JobClient]:
    with JobClient(running.address) as one:
        yield one


def table(client: FakeSwitchClient, name: str) -> list[TableEntry]:
    return sorted(client.read_table(name), key=lambda entry: entry.params.get("rank_bit", 1 << 40))


def test_two_racks_get_leases_with_levels(running: Running, client: JobClient) -> None:
    job = client.create_job("train", 4, 5)
    _, leases = form_at(running, client, "train", AT)
    root = Level("root", ((0, 1), (2, 3)))
    assert [lease.levels for lease in leases] == [
        *2 * [(Level("leaf1", ((0,), (1,)), "root"), root)],
        *2 * [(Level("leaf2", ((2,), (3,)), "root"), root)],
    ]
    assert [(lease.depth, lease.full) for lease in leases] == 4 * [(1, 0b11)]
    assert len({lease.secret for lease in leases}) == 4
    of_leaf = {"admit": 3, "job_member": 4, f"group {256 + job.id}": 1, f"group {512 + job.id}": 1}
    tables = {name: switch.tables() for name, switch in running.clients.items()}
    assert tables["leaf1"] == tables["leaf2"] == OWN | of_leaf
    assert tables["root"] == OWN | {"admit": 2, "job_member": 3, f"group {256 + job.id}": 1}
    client.remove_job("train")
    assert {name: switch.tables() for name, switch in running.clients.items()} == dict.fromkeys(RACKS, OWN)


def test_the_entries_of_a_leaf_and_its_parent_fit_each_other(running: Running, client: JobClient) -> None:
    job = client.create_job("train", 2)
    _, leases = form_at(running, client, "train", ["leaf2", "root"])
    leaf, root = running.clients["leaf2"], running.clients["root"]
    rank, parent = table(leaf, V1MODEL.admit)
    assert (rank.action, parent.action) == (V1MODEL.admit_rank, V1MODEL.admit_parent)
    common = {"slot_count": leases[0].slot_count, "epoch": leases[0].epoch}
    assert rank.params == {
        "rank_bit": 1, "full": 1, "slot_base": 0, **common, "group": 512 + job.id, "to_parent": 1
    }  # fmt: skip
    assert parent.params == {**common, "group": 256 + job.id}
    child, other = table(root, V1MODEL.admit)
    assert child.params == {
        "rank_bit": 1, "full": 3, "slot_base": 0, **common, "group": 256 + job.id, "to_parent": 0
    }  # fmt: skip
    assert other.match["secret"] == leases[1].secret
    assert child.match["secret"] == parent.match["secret"] != rank.match["secret"]
    assert (child.match["ingress_port"], parent.match["ingress_port"]) == (102, UPLINK)
    assert child.match["udp_src_port"] == parent.match["udp_src_port"] == 21072
    members = {entry.match["rank"]: entry.params for entry in leaf.read_table(V1MODEL.job_member)}
    assert sorted(members) == [0, 32], "the rank, and the parent"
    of_root = {entry.match["rank"]: entry.params for entry in root.read_table(V1MODEL.job_member)}
    assert members[32]["src_ip"] == child.match["ipv4_src"] == of_root[0]["dst_ip"]
    assert members[32]["dst_ip"] == parent.match["ipv4_src"] == of_root[0]["src_ip"]
    assert (members[32]["src_mac"], members[32]["dst_mac"]) == (of_root[0]["dst_mac"], of_root[0]["src_mac"])
    assert members[32]["secret"] == of_root[0]["secret"] == child.match["secret"]
    anycast = of_root[1]["src_ip"]
    assert members[0]["src_ip"] == anycast != of_root[0]["src_ip"], "ranks know one address, switches each other's own"
    groups = {group.group_id: group.replicas for group in leaf.read_groups()}
    assert groups == {256 + job.id: ((1, 0),), 512 + job.id: ((UPLINK, 32),)}
    assert root.read_groups() == [MulticastGroup(256 + job.id, ((102, 0), (2, 1)))]


def test_a_job_of_one_rack_needs_its_switch_alone(running: Running, client: JobClient) -> None:
    client.create_job("train", 2)
    running.clients["root"].refuse = lambda operation, entry: True
    _, leases = form_at(running, client, "train", ["leaf1", "leaf1"])
    assert leases[0].levels == (Level("leaf1", ((0,), (1,))),)
    assert [switch.jobs for switch in client.list_switches()] == [0, 1, 0]


@pytest.mark.fault("one switch of a tree restarts: the jobs whose tree has it are reset; others go on")
def test_a_switch_that_restarts_resets_just_the_jobs_whose_tree_has_it(running: Running, client: JobClient) -> None:
    for name, at in (("both", AT), ("one", ["leaf1"]), ("two", ["leaf2"])):
        client.create_job(name, len(at), 4)
        form_at(running, client, name, at)
    running.call(running.clients["leaf2"].restart)
    running.wait(lambda: not running.controller.registry.get("both").active)
    states = {job.name: job.state for job in client.list_jobs().jobs}
    assert states == {"both": "FORMING", "one": "ACTIVE", "two": "FORMING"}
    running.wait(lambda: running.clients["leaf2"].connections == 2 and not client_problem(running))
    form_at(running, client, "both", AT)
    assert client.get_job("one").epoch != client.get_job("both").epoch


def client_problem(running: Running) -> str:
    return running.controller.switches.unavailable_reason()


@pytest.mark.fault(
    "one switch of a tree refuses a job's entries: the job is reset: each rank that waits for its lease gets "
    "MemberResetError with the switch's refusal, and all switches' entries of the job are deleted"
)
def test_refused_entries_at_one_switch_are_removed_from_all(running: Running, client: JobClient) -> None:
    client.create_job("train", 4)
    running.clients["leaf2"].refuse = lambda operation, entry: (
        operation == "insert" and isinstance(entry, TableEntry) and entry.table == V1MODEL.admit
    )
    tickets = join_at(running, client, "train", AT)
    with pytest.raises(MemberResetError, match="the switch refused the entries of job train"):
        client.wait_lease(tickets[0].nonce, 10.0)
    running.call(lambda: None)
    client.remove_job("train")
    assert {name: switch.tables() for name, switch in running.clients.items()} == dict.fromkeys(RACKS, OWN)


@pytest.mark.fault(
    "a link between switches is not there, or leads to another switch or port: `join` and `controller switches` name "
    "the HELLO that did not arrive, or where it did; the job forms when the link is there"
)
def test_a_link_that_was_not_seen_is_named_and_the_lease_follows_when_it_is(
    running: Running, client: JobClient
) -> None:
    leaf = running.clients["leaf1"]
    cable = leaf.cables.pop(UPLINK)
    running.call(leaf.lose)
    running.wait(lambda: leaf.connections == 2 and not client_problem(running))
    client.create_job("train", 4)
    tickets = join_at(running, client, "train", AT)
    with pytest.raises(
        LeaseTimeoutError,
        match="link from leaf1 to root was not seen: the HELLO .* out of port 99 never arrived at root",
    ):
        client.wait_lease(tickets[0].nonce, 0.1)
    (_, listed, _) = client.list_switches()
    assert (listed.parent_port, "port 99 never arrived" in listed.link_problem) == (0, True)
    leaf.cables[UPLINK] = cable
    assert client.wait_lease(tickets[0].nonce, 10.0).depth == 1
    assert client.list_switches()[1].link_problem == ""


def test_links_are_found_again_without_a_wait_for_the_next_period(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their HELLOs are sent when both switches have their pipelines, though others may have been sent before."""
    monkeypatch.setattr(reconciler, "_LINK_HELLO_S", 3600.0)
    with serving(config) as running, JobClient(running.address) as client:
        root, leaf = running.clients["root"], running.clients["leaf1"]
        client.create_job("train", 4)
        form_at(running, client, "train", AT)
        hello_sent = threading.Event()

        def let_hellos_be_lost() -> None:
            leaf.before_packet_out = hello_sent.set
            running.call(running.controller.notifier.notify)
            assert hello_sent.wait(LIMIT_S)

        root.before_pipeline = let_hellos_be_lost
        running.call(root.restart)
        running.wait(lambda: root.commits == 2 and not client_problem(running))
        form_at(running, client, "train", AT)
        running.call(leaf.restart)
        running.wait(lambda: leaf.commits == 2 and not client_problem(running))
        form_at(running, client, "train", AT)


def test_a_link_is_not_silent_while_another_controller_is_primary_at_the_parent(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "_LINK_HELLO_S", 0.02)
    monkeypatch.setattr(reconciler, "_FIRST_PAUSE_S", 3600.0)
    with serving(config) as running:
        root, leaf = running.clients["root"], running.clients["leaf1"]
        links, sent = running.controller.registry.links, threading.Semaphore(0)
        assert root.on_primary is not None
        root.on_primary(False)  # after the first time this controller bids at once, after the second much later
        running.wait(lambda: root.connections == 2 and not client_problem(running) and links.problem("leaf1") == "")
        root.other_primary = "another controller"
        root.on_primary(False)
        running.wait(lambda: client_problem(running) != "")
        leaf.before_packet_out = sent.release
        for _ in range(SILENT_AFTER + 1):
            assert sent.acquire(timeout=LIMIT_S)
        assert running.call(lambda: links.problem("leaf1")) == ""


@pytest.mark.fault(
    "a cable between switches is cut, or moved to another switch, while both stay connected: `controller switches`, "
    "the log and `p4reduce_controller_link_up` report it; new jobs wait for it, ACTIVE ones are not reset"
)
def test_a_cable_that_is_moved_while_the_switches_are_connected_is_reported(
    running: Running, client: JobClient
) -> None:
    client.create_job("train", 4)
    tickets, _ = form_at(running, client, "train", AT)
    leaf = running.clients["leaf1"]
    cable, leaf.cables[UPLINK] = leaf.cables[UPLINK], (running.clients["leaf2"], 7)
    running.wait(lambda: running.controller.registry.links.problem("leaf1") != "")
    (_, listed, other) = client.list_switches()
    assert listed.link_problem.endswith("is silent: the HELLO from leaf1 to root arrived at leaf2, by its port 7")
    assert (listed.problem, other.link_problem) == ("", "")
    assert client.heartbeat(tickets[0].nonce) == (False, ""), "its job goes on"
    leaf.cables[UPLINK] = cable
    running.wait(lambda: not running.controller.registry.links.problem("leaf1"))
    assert client.list_switches()[1].link_problem == ""


def test_the_jobs_of_a_tree_survive_a_restart_of_the_controller(config: Config) -> None:
    clients = [FakeSwitchClient() for _ in RACKS]
    with serving(config, *clients) as running, JobClient(running.address) as client:
        client.create_job("train", 4)
        tickets, leases = form_at(running, client, "train", AT)
    with serving(config, *clients) as running, JobClient(running.address) as client:
        assert client.wait_lease(tickets[1].nonce, 10.0) == leases[1]
        assert client.get_job("train").tree[1:] == (leases[0].levels[0], leases[2].levels[0])
        assert [switch.commits for switch in clients] == [1, 1, 1]


@pytest.mark.fault(
    "the controller starts while one of its switches is away: jobs at the others are served; the switch is used "
    "as soon as it is back"
)
@pytest.mark.fault("state put back from a copy while the switches of two racks run on: those ahead of it begin an era")
@pytest.mark.parametrize(("at", "commits"), [(AT, [2, 2, 2]), (["leaf1"], [1, 2, 1])])
def test_state_put_back_from_a_copy_begins_eras_at_the_switches_that_are_ahead(
    config: Config, at: list[str], commits: list[int]
) -> None:
    clients = [FakeSwitchClient() for _ in RACKS]
    state = Path(config.controller.state_dir)
    with serving(config, *clients) as running, JobClient(running.address) as client:
        client.create_job("a", 4, 4)
        client.create_job("b", len(at), 4)
        form_at(running, client, "a", AT)
    shutil.copytree(state, state.with_name("copy"))
    with serving(config, *clients) as running, JobClient(running.address) as client:
        for ticket in form_at(running, client, "b", at)[0]:
            client.leave(ticket.nonce)
        running.wait(lambda: [switch.tables()["admit"] for switch in clients] == [2, 3, 3])
    shutil.rmtree(state)
    state.with_name("copy").rename(state)
    with serving(config, *clients) as running, JobClient(running.address) as client:
        assert [switch.commits for switch in clients] == commits
        assert "put back from a copy" in client.get_job("a").last_reset
        form_at(running, client, "b", at)


def test_the_controller_starts_without_a_switch_and_takes_it_later(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "_LONGEST_PAUSE_S", 0.02)
    clients = [FakeSwitchClient() for _ in RACKS]
    clients[2].reachable = False
    with serving(config, *clients) as running, JobClient(running.address) as client:
        client.create_job("train", 1, 4)
        form_at(running, client, "train", ["leaf1"])
        root, leaf1, leaf2 = client.list_switches()
        assert (root.problem, leaf1.problem) == ("", "")
        assert "no connection to switch leaf2 at 127.0.0.1:10002" in leaf2.problem
        counted = client.stats()
        assert [(job.name, job.switch) for job in counted.jobs] == [("train", "leaf1")]
        assert {drop.switch for drop in counted.drops} == {"root", "leaf1"}
        assert [each.switch for each in counted.away] == ["leaf2"]
        clients[2].reachable = True
        running.wait(lambda: not client_problem(running))
        client.create_job("both", 4, 4)
        form_at(running, client, "both", AT)
    for switch in clients:
        switch.reachable = False
    with pytest.raises(SwitchUnreachableError), serving(config, *clients):
        pass


def test_switches_are_listed_with_their_links_ranks_and_jobs(running: Running, client: JobClient) -> None:
    client.create_job("train", 4)
    form_at(running, client, "train", AT)
    root, leaf1, leaf2 = client.list_switches()
    assert astuple(root) == ("root", "127.0.0.1:10000", "127.0.0.1", 21072, "", "", 0, 0, "", 0, 1)
    assert astuple(leaf2) == ("leaf2", "127.0.0.1:10002", "127.0.0.1", 21072, "", "root", UPLINK, 102, "", 2, 1)
    assert leaf1.parent_port == 101


def test_counters_and_waits_are_by_switch(running: Running, client: JobClient) -> None:
    job = client.create_job("train", 4)
    tickets, _ = form_at(running, client, "train", AT)
    for number, counted in enumerate(running.clients.values()):
        counted.counters[V1MODEL.job_counters["contributions"], job.id] = (number, 10 * number)
        counted.counters[V1MODEL.job_counters["parent_answers"], job.id] = (7 * number, 0)
        counted.counters[V1MODEL.drops, 6] = (number, number)
    counts = client.stats("train")
    assert [(each.switch, each.contributions.packets, each.parent_answers.packets) for each in counts.jobs] == [
        ("root", 0, 0),
        ("leaf1", 1, 7),
        ("leaf2", 2, 14),
    ]
    drops = {drop.switch: drop.count.packets for drop in counts.drops if drop.reason == "EPOCH"}
    assert drops == {"root": 0, "leaf1": 1, "leaf2": 2}
    wait = WaitingSlot(slot=1, round=2, missing=2, waited_s=3.0, in_flight=4, level=1)
    client.heartbeat(tickets[0].nonce, wait)
    member = client.get_job("train").members[0]
    assert (member.slot_wait, member.switch) == (wait, "leaf1")


def test_counters_of_a_switch_that_is_away_are_missing_and_the_others_are_there(
    running: Running, client: JobClient
) -> None:
    train, one = client.create_job("train", 4, 4), client.create_job("one", 1, 4)
    client.create_job("new", 1, 4)
    form_at(running, client, "train", AT)
    form_at(running, client, "one", ["leaf2"])
    for number, counted in enumerate(running.clients.values(), 1):
        for job in (train, one):
            counted.counters[V1MODEL.job_counters["results"], job.id] = (number, 10 * number)
    running.clients["leaf2"].reachable = False
    counts = client.stats()
    found = [(each.name, each.switch, each.results.packets) for each in counts.jobs]
    assert found == [("new", "", 0), ("train", "root", 1), ("train", "leaf1", 2)]
    assert {drop.switch for drop in counts.drops} == {"root", "leaf1"}
    ((away, problem),) = ((each.switch, each.problem) for each in counts.away)
    assert (away, "127.0.0.1:10002 did not answer" in problem) == ("leaf2", True)
    assert counts.switches == ("leaf1", "leaf2", "root")
    assert client.stats("one").jobs == ()
    for switch in running.clients.values():
        switch.reachable = False
    with pytest.raises(SwitchAwayError, match=r"127\.0\.0\.1:10000 did not answer.*10001.*10002"):
        client.stats()


def test_workers_name_their_switch_where_the_addresses_differ(config: Config) -> None:
    apart = replace(
        config,
        switches=tuple(replace(each, udp_port=4000 + number) for number, each in enumerate(config.switches)),
    )
    with serving(apart) as running, JobClient(running.address) as client:
        client.create_job("train", 1)
        with pytest.raises(
            InvalidRequestError, match=r"P4REDUCE_SWITCH .* there are leaf1 at 127.0.0.1:4001, leaf2 at"
        ):
            client.join("train", 0, 1)
        with pytest.raises(InvalidRequestError, match="there is no switch 'leaf3'; there are leaf1 at"):
            client.join("train", 0, 1, switch="leaf3")
        ticket = client.join("train", 0, 1, switch="leaf2")
        assert (ticket.switch_host, ticket.switch_port) == ("127.0.0.1", 4002)
        with pytest.raises(LeaseTimeoutError, match=r"rank 0 never arrived .* expected at 127\.0\.0\.1:4002"):
            client.wait_lease(ticket.nonce, 0.05)
        running.hello(ticket.job_id, ticket.nonce, 0, "leaf2")
        lease = client.wait_lease(ticket.nonce, 10.0)
        assert (lease.switch_port, lease.levels[0].switch) == (4002, "leaf2")


def test_pipelines_of_different_shapes_are_refused(config: Config, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = make_config(tmp_path / "other", columns=8).switches[0].pipeline
    mixed = replace(config, switches=(*config.switches[:2], replace(config.switches[2], pipeline=other)))
    with pytest.raises(ConfigError, match="shapes .* leaf1 4 x 8, leaf2 8 x 8, root 4 x 8"):
        Controller(mixed)


def test_p4runtime_beyond_loopback_needs_tls_at_every_switch(config: Config) -> None:
    distant = replace(config.switches[2], p4runtime="10.9.8.7:9559")
    with pytest.raises(ConfigError, match=r"the switch at 10\.9\.8\.7:9559 would be written to without TLS"):
        Controller(replace(config, switches=(*config.switches[:2], distant)))

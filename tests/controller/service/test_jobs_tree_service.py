"""The job service over a tree of switches in memory: links, leases, entries, and switches that come and go."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import InvalidRequestError, LeaseTimeoutError
from p4reduce_contracts.jobs.lease import Level
from p4reduce_controller.config import Config
from p4reduce_controller.registry.links import SILENT_AFTER
from p4reduce_controller.service.process import Controller
from p4reduce_controller.switches import connection, reconciler
from p4reduce_controller.switches.program_names import V1MODEL
from p4reduce_runtime.p4runtime.entries import MulticastGroup, TableEntry
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
    make_config,
    serving,
    with_tree,
)

AT = ["leaf1", "leaf1", "leaf2", "leaf2"]
OWN = OWN_TABLES | {"switch_address": 2, "own_ip": 2, "own_mac": 2}
"""The table entries of a switch with an address for workers and one for other switches."""


@pytest.fixture
def config(config: Config, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setattr(reconciler, "_LINK_HELLO_S", 0.02)
    return with_tree(config, RACKS)


def table(client: FakeSwitchClient, name: str) -> list[TableEntry]:
    return sorted(client.read_table(name), key=lambda entry: entry.params.get("rank_bit", 1 << 40))


def test_the_entries_of_a_leaf_and_its_parent_fit_each_other(running: Running, client: JobClient) -> None:
    job = client.create_job("train", 2)
    _, leases = form_at(running, client, "train", ["leaf2", "root"])
    top = Level("root", ((0,), (1,)))
    assert [lease.switches[0].levels for lease in leases] == [(Level("leaf2", ((0,),), "root"), top), (top,)]
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
    assert other.match["secret"] == leases[1].switches[0].secret
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
    client.remove_job("train")
    assert {name: switch.tables() for name, switch in running.clients.items()} == dict.fromkeys(RACKS, OWN)


def client_problem(running: Running) -> str | None:
    return running.controller.switches.unavailable_reason()


def test_a_link_is_not_silent_while_another_controller_is_primary_at_the_parent(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_PAUSE_S", 3600.0)
    with serving(config) as running:
        root, leaf = running.clients["root"], running.clients["leaf1"]
        links, sent = running.controller.registry.links, threading.Semaphore(0)
        assert root.on_primary is not None
        root.on_primary(False)  # after the first time this controller bids at once, after the second much later
        running.wait(lambda: root.connections == 2 and not client_problem(running) and links.problem("leaf1") is None)
        root.other_primary = "another controller"
        root.on_primary(False)
        running.wait(lambda: client_problem(running) is not None)
        leaf.before_packet_out = sent.release
        for _ in range(SILENT_AFTER + 1):
            assert sent.acquire(timeout=LIMIT_S)
        assert running.call(lambda: links.problem("leaf1")) is None


@pytest.mark.fault(
    "the controller starts while one of its switches is away: jobs at the others are served; the switch is used "
    "as soon as it is back"
)
def test_the_controller_starts_without_a_switch_and_takes_it_later(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LONGEST_PAUSE_S", 0.02)
    clients = [FakeSwitchClient() for _ in RACKS]
    clients[2].reachable = False
    with serving(config, *clients) as running, JobClient(running.address) as client:
        client.create_job("train", 1, 4)
        form_at(running, client, "train", ["leaf1"])
        root, leaf1, leaf2 = client.list_switches()
        assert (root.problem, leaf1.problem) == (None, None)
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


def test_workers_name_their_switch_where_the_addresses_differ(config: Config) -> None:
    apart = replace(
        config, switches=tuple(replace(each, udp_port=4000 + number) for number, each in enumerate(config.switches))
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
        assert (ticket.switches[0].host, ticket.switches[0].port) == ("127.0.0.1", 4002)
        with pytest.raises(LeaseTimeoutError, match=r"rank 0 came .* expected at 127\.0\.0\.1:4002"):
            client.wait_lease(ticket.nonce, 0.05)
        running.hello(ticket.job_id, ticket.nonce, 0, "leaf2")
        lease = client.wait_lease(ticket.nonce, 10.0)
        assert (lease.switches[0].port, lease.switches[0].name) == (4002, "leaf2")


def test_pipelines_of_different_shapes_are_refused(config: Config, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = make_config(tmp_path / "other", columns=8).switches[0].pipeline
    mixed = replace(config, switches=(*config.switches[:2], replace(config.switches[2], pipeline=other)))
    with pytest.raises(ConfigError, match="shapes .* leaf1 4 x 8, leaf2 8 x 8, root 4 x 8"):
        Controller(mixed)

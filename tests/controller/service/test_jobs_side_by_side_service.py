"""The job service over switches side by side in memory: tickets, leases, entries, and switches that come and go."""

from __future__ import annotations

import pytest

from p4reduce_contracts.jobs.answers import JoinTicket, SwitchAddress
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import InvalidRequestError
from p4reduce_contracts.jobs.lease import Lease
from p4reduce_controller.config import Config
from p4reduce_controller.registry.job import ACTIVE
from p4reduce_controller.switches import connection, reconciler
from p4reduce_controller.switches.program_names import V1MODEL
from rigs.fake_switch_client import (
    SIDE_BY_SIDE,
    FakeSwitchClient,
    Running,
    form_at,
    serving,
    with_switches_side_by_side,
)


@pytest.fixture
def config(config: Config, monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setattr(connection, "LONGEST_PAUSE_S", 0.02)
    monkeypatch.setattr(reconciler, "_LOST_AFTER_S", 3600.0)  # a switch that is away is lost where a test says so
    return with_switches_side_by_side(config)


def form(running: Running, client: JobClient, at: str = "abc") -> tuple[list[JoinTicket], list[Lease]]:
    return form_at(running, client, "train", [tuple(at)] * 2)


def test_a_lease_has_the_switches_of_the_ticket_and_the_entries_its_secrets(
    running: Running, client: JobClient
) -> None:
    with pytest.raises(InvalidRequestError, match="at least 1 switch"):
        client.create_job("train", 2, 4, switches=0)
    client.create_job("train", 2, 4)
    tickets, leases = form(running, client)
    assert tickets[0].switches == tuple(
        SwitchAddress(name, "127.0.0.1", 4001 + n) for n, name in enumerate(SIDE_BY_SIDE)
    )
    assert [(each.name, each.port) for each in leases[1].switches] == [("b", 4002), ("c", 4003), ("a", 4001)]
    assert leases[0].slot_count == 12 and leases[0].depth == 0
    for rank, lease in enumerate(leases):
        for each in lease.switches:
            entries = running.clients[each.name].read_table(V1MODEL.admit)
            (entry,) = (entry for entry in entries if entry.params["rank_bit"] == 1 << rank)
            assert (entry.match["secret"], entry.params["slot_count"]) == (each.secret, 4)
    assert [(each.jobs, each.ranks) for each in client.list_switches()] == [(1, 2)] * 3


def test_a_lost_switch_is_left_out_until_it_is_back(
    running: Running, client: JobClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "_LOST_AFTER_S", 0.0)
    client.create_job("train", 2, 4)
    tickets, _ = form(running, client)
    running.clients["b"].reachable = False
    running.call(running.clients["b"].lose)
    running.wait(lambda: not running.controller.registry.grants("b"))
    assert client.heartbeat(tickets[0].nonce) == "the controller lost switch b for more than 1 s"
    tickets, leases = form(running, client, "ac")
    assert [each.name for each in leases[0].switches] == ["c", "a"]
    running.clients["b"].reachable = True
    running.wait(lambda: not running.controller.switches.unavailable_reason())
    assert client.get_job("train").state == ACTIVE
    client.leave(tickets[0].nonce)
    assert [each.name for each in form(running, client)[1][0].switches] == ["b", "c", "a"]


def test_a_job_continues_over_a_restart_of_the_controller(config: Config) -> None:
    clients = [FakeSwitchClient() for _ in SIDE_BY_SIDE]
    with serving(config, *clients) as running, JobClient(running.address) as client:
        client.create_job("train", 2, 4, switches=2)
        tickets, _ = form(running, client)
        before = client.get_job("train")
    clients[0].reachable = False  # the one that the job does not use
    with serving(config, *clients) as running, JobClient(running.address) as client:
        assert client.heartbeat(tickets[1].nonce) is None
        after = client.get_job("train")
        assert (after.state, after.epoch, after.tree) == (ACTIVE, before.epoch, before.tree)
        assert after.members[1].addresses == before.members[1].addresses
        client.create_job("other", 1, 4)
        _, (lease,) = form_at(running, client, "other", [("b", "c")])
        assert [each.name for each in lease.switches] == ["b", "c"]

"""What the job service writes to the switch, and what it does when the switch refuses or goes away.

The HELLOs of each port are limited, so that a flood at one does not disturb the others; restarts on BMv2.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from conformance.bmv2 import SWITCH, Bmv2Target
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import LeaseTimeoutError, MemberResetError, StoreError, SwitchAwayError
from p4reduce_contracts.jobs.lease import ONLY_SWITCH
from p4reduce_controller.config import Config, ForwardingConfig, PortConfig
from p4reduce_controller.p4runtime.client import Client
from p4reduce_controller.service.process import ControllerError
from p4reduce_controller.service.store import FILE
from p4reduce_controller.switches import connection, reconciler
from p4reduce_controller.switches.entry_writer import EntryWriter
from p4reduce_controller.switches.program_names import V1MODEL
from p4reduce_runtime.p4runtime.entries import DigestConfig, Entry, MeterConfig, MeterEntry, MulticastGroup, TableEntry
from p4reduce_runtime.p4runtime.errors import NotPrimaryError, ReadError
from rigs import wire
from rigs.fake_switch_client import (
    OWN_TABLES,
    FakeSwitchClient,
    Running,
    check_restarts,
    create_and_form,
    form,
    join_at,
    make_entry_writer,
    one_rank_grant,
    serving,
)
from rigs.limits import LIMIT_S
from rigs.p4rt import bmv2 as served_bmv2
from rigs.pipeline import SWITCH_IP, udp_frame


def test_the_entries_of_an_active_job(running: Running, client: JobClient) -> None:
    client.create_job("first", 1, slots=3)
    made = client.create_job("train", 2, slots=5)
    _, leases = form(running, client, "train", 2)
    admit = running.client.read_table("MainIngress.admission.admit")[1]
    assert admit.action == "MainIngress.admission.admit_rank"
    assert admit.match == {
        "ingress_port": 2, "ipv4_src": 0x0A00000B, "udp_src_port": 4001, "job": made.id,
        "secret": leases[1].switches[0].secret,
    }  # fmt: skip
    group = 256 + made.id
    assert admit.params == {
        "rank_bit": 2, "full": 3, "slot_base": 3, "slot_count": 5, "epoch": 1, "group": group, "to_parent": 0
    }  # fmt: skip
    member = running.client.read_table("MainEgress.address_reply.job_member")[2]
    assert member.match == {"job": made.id, "rank": 1}
    assert member.params == {
        "dst_mac": 0x020000000A01, "dst_ip": 0x0A00000B, "dst_port": 4001,
        "src_mac": 0x02007F000001, "src_ip": 0x7F000001, "secret": leases[1].switches[0].secret,
    }  # fmt: skip
    assert running.client.read_groups() == [MulticastGroup(group, ((1, 0), (2, 1)))]
    [own_ip] = running.client.read_table("MainIngress.address.own_ip")
    [own_mac] = running.client.read_table("MainIngress.address.own_mac")
    assert (own_ip.match, own_mac.match) == ({"source_ip": 0x7F000001}, {"src_mac": 0x02007F000001})


def test_reply_entries_are_written_before_admission_entries(running: Running, client: JobClient) -> None:
    client.create_job("train", 2)
    running.client.log.clear()
    form(running, client, "train", 2)
    client.remove_job("train")
    steps = [
        (operation, entry.table.rpartition(".")[2] if isinstance(entry, TableEntry) else "group")
        for operation, entry in running.client.log
    ]
    marked, inserts, deletes = steps[0], steps[1:6], steps[6:]
    assert marked == ("modify", "job_member")
    assert inserts == [("insert", name) for name in ("job_member", "job_member", "group", "admit", "admit")]
    assert deletes == [("delete", name) for name in ("admit", "admit", "job_member", "job_member", "group")]


@pytest.mark.fault(
    'SIGKILL of the switch, then another one: reset, "the switch restarted"; the job forms again with another epoch'
)
def test_a_switch_restart_resets_active_jobs_and_jobs_form_again(running: Running, client: JobClient) -> None:
    tickets, leases = create_and_form(running, client, "train", 2)
    running.client.restart()
    connected_again(running)
    assert client.heartbeat(tickets[1].nonce) == reconciler.RESTARTED
    assert running.client.commits == 2
    assert running.client.tables() == OWN_TABLES
    _, again = form(running, client, "train", 2)
    assert again[0].epoch == leases[0].epoch + 1


def test_answers_name_a_switch_without_connection(running: Running, client: JobClient) -> None:
    client.create_job("train", 1, slots=8)
    ticket = client.join("train", 0, 1)
    running.client.reachable = False
    running.client.lose()
    running.wait(lambda: bool(running.controller.switches.unavailable_reason()))
    with pytest.raises(SwitchAwayError, match=r"no connection to its switch at 127\.0\.0\.1:9559"):
        client.stats()
    with pytest.raises(LeaseTimeoutError, match="no connection to its switch"):
        client.wait_lease(ticket.nonce, 0.01)
    client.create_job("other", 1)
    client.remove_job("other")
    running.client.reachable = True
    running.wait(lambda: not running.controller.switches.unavailable_reason())
    running.hello(ticket.job_id, ticket.nonce, 0)
    assert client.wait_lease(ticket.nonce, 10.0).epoch == 1


def changes(switch: FakeSwitchClient) -> list[tuple[str, Entry]]:
    """Return the writes of entries and groups."""
    return [(operation, entry) for operation, entry in switch.log if not isinstance(entry, DigestConfig)]


def connected_again(running: Running, times: int = 2) -> None:
    running.wait(lambda: running.client.connections == times and not running.controller.switches.unavailable_reason())


@pytest.mark.fault("the connection to the switch breaks, its entries unchanged: nothing is reset")
@pytest.mark.usefixtures("patient")
def test_a_broken_stream_resets_no_job_when_the_switch_kept_its_entries(running: Running, client: JobClient) -> None:
    tickets, leases = create_and_form(running, client, "train", 2)
    before = dict(running.client.entries)
    running.client.log.clear()
    running.client.lose()
    connected_again(running)
    assert client.heartbeat(tickets[0].nonce) is None
    assert client.get_job("train").epoch == leases[0].epoch
    assert (running.client.entries, changes(running.client), running.client.commits) == (before, [], 1)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are not reset because a busy machine takes long to connect again."""
    monkeypatch.setattr(reconciler, "_LOST_AFTER_S", 3600.0)


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are reset as soon as the connection to the switch is lost, and the controller bids again after 0.01 s."""
    monkeypatch.setattr(reconciler, "_LOST_AFTER_S", 0.0)
    monkeypatch.setattr(connection, "LONGEST_PAUSE_S", 0.01)


def is_refused(call: Callable[[], object], error: type[Exception], reason: str) -> bool:
    """Whether the call is refused for this reason: now or later, as between two bids there is no connection."""
    for _ in range(1000):
        with pytest.raises(error) as refused:
            call()
        if reason in str(refused.value):
            return True
    return False


@pytest.mark.fault(
    "the largest election id for more than 1 s, nothing written: active jobs continue without a reset; "
    "LeaseTimeoutError of a forming job names the cause; leases are granted again after its owner has left"
)
@pytest.mark.fault("stats asked for while another primary has the largest election id: SwitchAwayError names the cause")
@pytest.mark.fault("another primary that changed nothing: no job ends")
@pytest.mark.usefixtures("short_pauses")
def test_jobs_continue_under_another_primary_with_the_largest_election_id(running: Running, client: JobClient) -> None:
    switch = running.client
    client.create_job("train", 1, 8)
    client.create_job("forming", 1, 4)
    tickets, leases = form(running, client, "train", 1)
    switch.log.clear()
    switch.other_primary = "another controller is primary with the largest election id"
    assert switch.on_primary is not None
    switch.on_primary(False)
    running.wait(lambda: switch.connections > 5)
    assert client.heartbeat(tickets[0].nonce) is None
    waiting = client.join("forming", 0, 1)
    reason = "the controller cannot change its switch at 127.0.0.1:9559: another controller is primary"
    assert is_refused(lambda: client.wait_lease(waiting.nonce, 0.01), LeaseTimeoutError, reason)
    assert is_refused(client.stats, SwitchAwayError, reason)
    switch.other_primary = None
    running.wait(lambda: not running.controller.switches.unavailable_reason())
    assert (client.get_job("train").epoch, client.get_job("train").last_reset) == (leases[0].epoch, None)
    assert changes(switch) == []
    running.hello(waiting.job_id, waiting.nonce, 1)
    assert client.wait_lease(waiting.nonce, 10.0).epoch == leases[0].epoch + 1


@pytest.mark.fault(
    "a controller is started while another primary has the largest election id: NotPrimaryError names the "
    "cause; started later, it continues the jobs"
)
@pytest.mark.usefixtures("short_pauses")
def test_a_controller_does_not_start_while_another_has_the_largest_possible_election_id(config: Config) -> None:
    switch = FakeSwitchClient()
    with serving(config, switch) as running, JobClient(running.address) as client:
        create_and_form(running, client, "train", 1)
    switch.other_primary = "another controller is primary with the largest election id"
    with (
        pytest.raises(NotPrimaryError, match="not primary for the switch at .* the largest election id"),
        serving(config, switch),
    ):
        pass
    switch.other_primary = None
    with serving(config, switch) as running, JobClient(running.address) as client:
        assert client.get_job("train").state == "ACTIVE"


@pytest.mark.fault("another primary that stays and deletes an entry of a job: that job alone is reset")
@pytest.mark.fault("an entry of a job deleted or changed: that job alone is reset")
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("part", ["admit", "job_member", "group"])
def test_of_two_jobs_the_one_with_a_missing_or_changed_entry_is_reset(
    running: Running, client: JobClient, part: str
) -> None:
    tickets = {}
    for name in ("whole", "hurt"):
        tickets[name], _ = create_and_form(running, client, name, 2, 4)
    names = [name for name in running.client.entries if part in name]
    lost = running.client.entries.pop(names[-1])
    if isinstance(lost, TableEntry):
        running.client.entries[names[-1]] = replace(lost, params={**lost.params, next(iter(lost.params)): 77})
    running.client.lose()
    connected_again(running)
    assert client.heartbeat(tickets["whole"][0].nonce) is None
    assert client.heartbeat(tickets["hurt"][0].nonce) == reconciler.CHANGED
    tables = running.client.tables()
    groups = [name for name in tables if name.startswith("group")]
    assert (tables["admit"], tables["job_member"], len(groups)) == (2, 3, 1), "nothing of the hurt job stays"
    form(running, client, "hurt", 2)
    assert running.client.tables()["admit"] == 4


def test_entries_that_the_switch_refuses_reset_the_job_and_are_all_deleted(running: Running, client: JobClient) -> None:
    def second_admission(operation: str, entry: Entry) -> bool:
        is_admission = isinstance(entry, TableEntry) and "admit" in entry.table
        return operation == "insert" and is_admission and len(running.client.read_table(entry.table)) == 1

    client.create_job("train", 2)
    running.client.refuse = second_admission
    tickets = join_at(running, client, "train", [ONLY_SWITCH] * 2)
    with pytest.raises(MemberResetError, match="the switch refused the entries of job train: .*RESOURCE_EXHAUSTED"):
        client.wait_lease(tickets[0].nonce, 10.0)
    assert "'secret': 'hidden'" in client.get_job("train").last_reset, "the error names the entry, not what is secret"
    assert running.client.tables() == OWN_TABLES
    running.client.refuse = lambda operation, entry: False
    form(running, client, "train", 2)


def test_a_member_that_leaves_while_the_entries_are_written(running: Running, client: JobClient) -> None:
    client.create_job("train", 2)
    writing, go_on = threading.Event(), threading.Event()

    def hold(operation: str, entry: Entry) -> None:
        writing.set()
        assert go_on.wait(LIMIT_S)

    running.client.before_write = hold
    tickets = join_at(running, client, "train", [ONLY_SWITCH] * 2)
    assert writing.wait(LIMIT_S)
    client.leave(tickets[1].nonce)
    running.client.before_write = lambda operation, entry: None
    go_on.set()
    with pytest.raises(LeaseTimeoutError, match="rank 1 did not join"):
        client.wait_lease(tickets[0].nonce, 0.2)
    running.wait(lambda: running.client.tables() == OWN_TABLES)
    again = client.join("train", 1, 2)
    running.hello(again.job_id, again.nonce, 1)
    assert client.wait_lease(tickets[0].nonce, 10.0).epoch == 2


def test_a_job_continues_over_a_restart_of_the_controller(config: Config) -> None:
    switch = FakeSwitchClient()
    with serving(config, switch) as running, JobClient(running.address) as client:
        switch.counters["MainIngress.contributions", 1] = (100, 5000)
        tickets, leases = create_and_form(running, client, "train", 2)
        shown = client.get_job("train")
        held = dict(switch.entries)
    assert switch.entries == held, "the job needs no controller"
    switch.log.clear()
    switch.counters["MainIngress.contributions", 1] = (107, 5700)
    with serving(config, switch) as running, JobClient(running.address) as client:
        assert (switch.entries, changes(switch), switch.commits) == (held, [], 1)
        assert client.heartbeat(tickets[0].nonce) is None
        assert client.wait_lease(tickets[1].nonce, 10.0) == leases[1]
        found = client.get_job("train")
        assert [replace(one, silent_s=0.0) for one in found.members] == [
            replace(one, silent_s=0.0) for one in shown.members
        ]
        assert found.epoch == leases[0].epoch
        assert client.stats("train").jobs[0].contributions.packets == 7
        running.pass_time(9.9)
        assert client.heartbeat(tickets[0].nonce) is None, "members have time to be heard again"
        running.pass_time(0.1)
        assert client.heartbeat(tickets[0].nonce) == "rank 1 sent no heartbeat for 10 s"
        _, again = form(running, client, "train", 2)
        assert again[0].epoch == leases[0].epoch + 1


@pytest.mark.fault("the controller restarts without its state: it clears the switch; no old round returns")
def test_a_controller_with_a_lost_store_sets_the_pipeline_again(config: Config) -> None:
    """The registers may hold rounds of epochs that it would give out again."""
    switch = FakeSwitchClient()
    with serving(config, switch) as running, JobClient(running.address) as client:
        create_and_form(running, client, "train", 2)
    (Path(config.controller.state_dir) / FILE).unlink()
    with serving(config, switch) as running, JobClient(running.address) as client:
        assert switch.commits == 2
        assert switch.tables() == OWN_TABLES
        assert client.list_jobs().jobs == ()


def test_the_registers_are_cleared_while_no_job_runs_long_before_epochs_repeat(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciler, "_ENOUGH_EPOCHS", 3)
    with serving(config) as running, JobClient(running.address) as client:
        client.create_job("train", 1)
        for number in range(3):
            tickets, leases = form(running, client, "train", 1)
            assert (leases[0].epoch, running.client.commits) == (number + 1, 1)
            client.leave(tickets[0].nonce)
        running.wait(lambda: running.client.commits == 2)
        _, leases = form(running, client, "train", 1)
        assert leases[0].epoch == 4, "old numbers come last all the same"


def test_few_epochs_left_while_a_job_runs_is_a_warning(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reconciler, "_ENOUGH_EPOCHS", 1)
    with serving(config) as running, JobClient(running.address) as client:
        create_and_form(running, client, "train", 1)
        running.wait(lambda: "epochs run short" in caplog.messages)
        assert running.client.commits == 1


def test_a_port_in_use_is_an_error_before_the_switch_is_written(config: Config, running: Running) -> None:
    second = structs.replace(config, controller=structs.replace(config.controller, listen=running.address))
    switch = FakeSwitchClient()
    with pytest.raises(ControllerError, match="is another controller running"), serving(second, switch):
        pass
    assert switch.connections == 0


def test_macs_are_static_or_learned(config: Config) -> None:
    config = structs.replace(
        config, ports=(PortConfig(1, "02:00:00:00:00:11"),), forwarding=ForwardingConfig(learn=True, flood=(1, 2))
    )
    with serving(config) as running:
        assert MulticastGroup(1, ((1, 1), (2, 1))) in running.client.read_groups()
        assert running.client.on_digest is not None
        running.client.on_digest("mac_learn_t", [(0x020000000022, 2), (0x020000000011, 2)])
        running.wait(lambda: running.client.tables()["learned"] == 2)
        ports = {
            entry.match["dst_mac"]: entry.params["port"]
            for entry in running.client.read_table("MainIngress.forwarding.mac_table")
        }
        assert ports == {0x020000000011: 1, 0x020000000022: 2}


def test_a_disk_error_while_the_switch_restarts_does_not_end_the_controller(
    running: Running, client: JobClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client.create_job("train", 1)
    store = running.controller._store
    begin_era = store.begin_era

    def full(switch: str) -> int:
        monkeypatch.setattr(store, "begin_era", begin_era)  # there is room again at the next try
        raise StoreError("no space is left on the disk")

    monkeypatch.setattr(store, "begin_era", full)
    running.client.restart()
    connected_again(running, 3)
    told = [record for record in caplog.records if record.getMessage() == "switch not reached"]
    assert "no space is left on the disk" in told[0].__dict__["p4reduce_fields"]["cause"]
    form(running, client, "train", 1)


def test_groups_of_another_program_are_deleted_before_the_program_is_set() -> None:
    """On BMv2 they outlive it: a group of the same number would keep its old replicas beside the new ones."""
    client, deleted = FakeSwitchClient(), list[int]()
    for number, geometry in enumerate(("small", "default")):
        entry_writer = make_entry_writer(client, geometry)
        before = [entry.group_id for entry in client.read_groups()]
        client.log.clear()
        entry_writer.cold_start(1 + number)
        deleted = [
            entry.group_id for done, entry in client.log if done == "delete" and isinstance(entry, MulticastGroup)
        ]
        assert sorted(deleted) == sorted(before)
        entry_writer.install(one_rank_grant(0), draws=1)
    assert deleted, "the first program had groups"


@pytest.fixture
def probed_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a short interval of probes, for a controller that starts after it."""
    monkeypatch.setattr(connection, "PROBE_INTERVAL_S", 0.02)


@pytest.fixture
def hanging(running: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A controller whose switch can be made to hang (`client.answering`); it goes on at the end."""
    monkeypatch.setattr(reconciler, "_ANSWER_LIMIT_S", 2.0)
    yield running
    running.client.answering.set()


def test_a_job_is_made_and_removed_while_the_switch_hangs(hanging: Running, caplog: pytest.LogCaptureFixture) -> None:
    """The calls end before the switch does; of those to the controller only the removal waits for it, 2 s at most."""

    def waits() -> list[float]:
        records = [record for record in caplog.records if record.getMessage() == "switch slow"]
        return [record.__dict__["p4reduce_fields"]["waited_s"] for record in records]

    hanging.client.timeout_s = 10 * LIMIT_S
    with JobClient(hanging.address, timeout_s=LIMIT_S) as client:
        create_and_form(hanging, client, "train", 1, slots=4)
        hanging.client.answering.clear()
        client.create_job("other", 1)
        assert waits() == []
        with pytest.raises(SwitchAwayError, match="gave no answer within 2 s"):
            client.stats("train")
        client.remove_job("train")
        assert waits() == [2.0]
        assert [job.name for job in client.list_jobs().jobs] == ["other"]


@pytest.mark.fault(
    'the switch is stopped for longer than the probes: reset, "lost the switch"; used again when it continues'
)
def test_a_probe_without_an_answer_ends_the_connection(
    probed_often: None, hanging: Running, client: JobClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    tickets, _ = create_and_form(hanging, client, "train", 1)
    monkeypatch.setattr(reconciler, "_PROBE_LIMIT_S", 0.05)
    hanging.client.timeout_s = 0.2
    hanging.client.answering.clear()
    hanging.wait(lambda: not hanging.controller.registry.get("train").active)
    assert client.heartbeat(tickets[0].nonce) == reconciler.LOST
    monkeypatch.undo()  # from here on no probe may fail
    hanging.client.answering.set()
    hanging.wait(lambda: not hanging.controller.switches.unavailable_reason())
    form(hanging, client, "train", 1)


def test_a_switch_that_refuses_probes_is_not_lost(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not know the call, but it answers."""
    monkeypatch.setattr(connection, "PROBE_INTERVAL_S", 0.01)
    probes = threading.Semaphore(0)

    def capabilities() -> str:
        probes.release()
        raise ReadError("UNIMPLEMENTED")

    with serving(config) as running:
        running.client.capabilities = capabilities  # type: ignore[method-assign]
        for _ in range(2 * connection.PROBE_FAILURES):
            assert probes.acquire(timeout=LIMIT_S)
        assert running.client.connections == 1


SLOW = MeterConfig(1, 5, 1, 5)


def entry_writer(client: Any, limit: MeterConfig) -> EntryWriter:
    return make_entry_writer(
        client, address=str(IPv4Address(SWITCH_IP)), hellos_a_second=limit.cir, hello_burst=limit.cburst
    )


def test_every_port_has_a_rate_from_the_first_and_after_reconciliation() -> None:
    """A fresh switch gets the rates of the configuration, a switch that is taken over those of the new one."""
    switch = FakeSwitchClient()
    for rates in (SLOW, MeterConfig(100, 200, 100, 200)):
        made = entry_writer(switch, rates)
        if rates is SLOW:
            made.cold_start(7)
        else:
            assert made.warm_restart(7, [], 0) == frozenset()
        limits = [entry for _, entry in switch.log if isinstance(entry, MeterEntry)][-512:]
        assert limits == [MeterEntry(V1MODEL.hello_rate, port, rates) for port in range(512)]
        made.client.close()


@pytest.mark.fault("a flood of HELLOs at a port of BMv2: a HELLO at another port reaches the controller")
@pytest.mark.bmv2
@pytest.mark.skipif(SWITCH is None, reason="needs simple_switch_grpc on PATH")
def test_a_flood_at_one_port_of_bmv2_does_not_affect_other_ranks() -> None:
    heard: queue.SimpleQueue[int] = queue.SimpleQueue()
    with Bmv2Target() as bmv2:
        made = entry_writer(Client(bmv2.address, timeout_s=LIMIT_S), SLOW)
        made.client.on_packet_in = lambda payload, metadata: heard.put(metadata["ingress_port"])
        made.cold_start(7)
        bmv2.pipeline_set()
        for _ in range(40):
            bmv2.arrive(1, udp_frame(0, wire.pack_hello(7, 5)))
        bmv2.arrive(2, udp_frame(1, wire.pack_hello(7, 6)))
        ports = [heard.get(timeout=LIMIT_S)]
        while ports[-1] != 2:
            ports.append(heard.get(timeout=LIMIT_S))
        dropped = made.drop_counters()["RATE"].packets
        made.client.close()
    assert ports.count(2) == 1
    assert 5 <= ports.count(1) <= 20, "the burst, and one a second"
    assert ports.count(1) + dropped == 40


@pytest.mark.fault(
    "SIGKILL or SIGTERM of the controller of a BMv2 switch, then another one: BMv2 keeps entries and cookie; "
    "the jobs continue"
)
@pytest.mark.bmv2
def test_a_restarted_controller_restores_its_jobs_on_bmv2() -> None:
    """Frames come by interfaces there, so HELLO is not sent here: what counts is that BMv2 keeps cookie and entries."""
    with served_bmv2() as address:
        check_restarts(lambda: make_entry_writer(Client(address, timeout_s=LIMIT_S))).client.close()

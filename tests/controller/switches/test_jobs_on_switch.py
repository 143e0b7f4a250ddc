"""The controller and the software switch as real processes, workers as UDP sockets on loopback."""

from __future__ import annotations

import contextlib
import signal
import time

import pytest

from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import ControllerUnreachableError
from p4reduce_controller.config import Config
from p4reduce_controller.p4runtime.client import Client
from p4reduce_controller.registry.hello import Address
from p4reduce_controller.registry.job import Grant, rank_children
from p4reduce_controller.registry.slots import SlotRange
from p4reduce_controller.switches import pipeline as pipelines
from p4reduce_controller.switches.entry_writer import EntryWriter
from p4reduce_controller.switches.mac_table import MacTable
from p4reduce_controller.switches.program_names import V1MODEL
from p4reduce_runtime.pipeline_folders import find
from rigs.limits import LIMIT_S
from rigs.p4rt import bmv2
from rigs.system import System
from rigs.udp_workers import close, form, sum_one_round


def until_answered(client: JobClient) -> None:
    """Return when the client has found the controller again."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(ControllerUnreachableError):
            client.list_jobs()
            return
    raise AssertionError("no controller")


@pytest.mark.fault(
    "SIGKILL of the controller, then another one: sums continue without it; job, epoch and counts are unchanged"
)
def test_hello_datagrams_bring_leases_and_sums_continue_over_a_restart_of_the_controller(system: System) -> None:
    with JobClient(system.controller.address("jobs on")) as client:
        client.create_job("train", 3, slots=4)
        workers = form(client, 3)
        for number in range(3):
            sum_one_round(workers, number)
        assert workers[2].lease is not None
        assert (workers[2].lease.rank, workers[2].lease.slot_count, workers[2].lease.epoch) == (2, 4, 1)
        members = client.get_job("train").members
        assert [one.addresses[0].port for one in members] == [worker.socket.getsockname()[1] for worker in workers]
        stats = client.stats("train")
        assert stats.jobs[0].contributions.packets == 9
        assert stats.jobs[0].results.packets == 3
        assert sum(drop.count.packets for drop in stats.drops) == 0

        system.controller.end(signal.SIGKILL)
        sum_one_round(workers, 3)  # the switch needs no controller to sum
        system.start_controller()
        sum_one_round(workers, 4)
        until_answered(client)
        assert [client.heartbeat(worker.ticket.nonce) for worker in workers] == [None] * 3
        assert client.get_job("train").epoch == 1
        assert client.stats("train").jobs[0].contributions.packets == 15, "those before the restart count too"
        close(workers)
    assert system.controller.end(signal.SIGTERM) == 0


@pytest.mark.fault(
    "SIGKILL or SIGTERM of the controller of a BMv2 switch, then another one: BMv2 keeps entries and cookie; "
    "the jobs continue"
)
@pytest.mark.bmv2
def test_a_restarted_controller_restores_its_jobs_on_bmv2() -> None:
    """Frames come by interfaces there, so HELLO is not sent here: what counts is that BMv2 keeps cookie and entries."""
    with bmv2() as address:
        grants = [_grant(number) for number in range(2)]
        first = _entry_writer(address)
        first.client.connect()
        assert first.warm_restart(7, [], 0) is None
        first.cold_start(7)
        for draws, grant in enumerate(grants, 1):
            first.install(grant, draws)
        first.client.close()
        second = _entry_writer(address)
        second.client.connect()
        assert second.warm_restart(8, grants, 2) is None, "another era's"
        assert second.warm_restart(7, grants, 1) is None, "an epoch was drawn that this controller does not know"
        assert second.warm_restart(7, grants, 2) == {1, 2}
        assert second.warm_restart(7, grants[1:], 3) == {2}
        assert [entry.match["job"] for entry in second.client.read_table(V1MODEL.admit)] == [2]
        second.client.close()


def _entry_writer(address: str) -> EntryWriter:
    config, client, pipeline = Config(), Client(address, timeout_s=LIMIT_S), pipelines.read(find("small"))
    return EntryWriter(client, config.switches[0], pipeline, MacTable(config, config.switches[0], pipeline.names))


def _grant(number: int) -> Grant:
    address = Address(ingress_port=1 + number, mac=0x020000000A00 + number, ip=0x0A00000A + number, udp_port=4000)
    return Grant(1 + number, f"job{number}", 1 + number, SlotRange(4 * number, 4), rank_children((address,), (number,)))

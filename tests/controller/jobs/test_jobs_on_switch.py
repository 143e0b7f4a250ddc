"""The controller and the software switch as real processes, workers as UDP sockets on loopback."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import p4reduce
from p4reduce.codecs import Lanes
from p4reduce.errors import JobResetError
from p4reduce_contracts.jobs.client import (
    ControllerUnreachableError,
    JobClient,
    LeaseTimeoutError,
    SwitchAwayError,
)
from p4reduce_controller.config import Config
from p4reduce_controller.forwarding import MacTable
from p4reduce_controller.jobs import pipeline as pipelines
from p4reduce_controller.jobs.entry_writer import EntryWriter
from p4reduce_controller.jobs.hello import Address
from p4reduce_controller.jobs.model import Grant, rank_children
from p4reduce_controller.jobs.slots import SlotRange
from p4reduce_controller.p4names import V1MODEL
from p4reduce_controller.p4runtime import elections
from p4reduce_controller.p4runtime.client import Client
from p4reduce_runtime.pipeline_folders import find
from rigs.limits import LIMIT_S
from rigs.p4rt import bmv2
from rigs.system import System
from rigs.udp_workers import Worker, close, form, sum_one_round


def until_reset(worker: Worker) -> str:
    """Send heartbeats until one is answered with a reset; the reason."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        reset, reason = worker.client.heartbeat(worker.ticket.nonce)
        if reset:
            return reason
    raise AssertionError("no reset")


def until_refused(worker: Worker, reason: str) -> None:
    """Return when its lease is refused for this reason: between two bids the controller has no connection."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with pytest.raises(LeaseTimeoutError) as refused:
            worker.client.wait_lease(worker.ticket.nonce, 0.1)
        if re.search(reason, str(refused.value)):
            return
    raise AssertionError(str(refused.value))


def until_answered(client: JobClient) -> None:
    """Return when the client has found the controller again."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(ControllerUnreachableError):
            client.list_jobs()
            return
    raise AssertionError("no controller")


def until_connected(client: JobClient) -> None:
    """Return when the controller has its switch again."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(SwitchAwayError):
            client.stats()
            return
    raise AssertionError("the controller did not come back to the switch")


def test_hello_datagrams_bring_leases_and_the_switch_sums(system: System) -> None:
    with JobClient(system.controller.address("jobs on")) as client:
        client.create_job("train", 3, slots=4)
        workers = form(client, 3)
        for number in range(3):
            sum_one_round(workers, number)
        assert workers[2].lease is not None
        assert (workers[2].lease.rank, workers[2].lease.slot_count, workers[2].lease.epoch) == (2, 4, 1)
        members = client.get_job("train").members
        assert [one.port for one in members] == [worker.socket.getsockname()[1] for worker in workers]
        stats = client.stats("train")
        assert stats.jobs[0].contributions.packets == 9
        assert stats.jobs[0].results.packets == 3
        assert sum(drop.count.packets for drop in stats.drops) == 0

        client.leave(workers[1].ticket.nonce)
        assert until_reset(workers[0]) == "rank 1 left"
        other = Worker(client, 0, 3)
        other.lease = workers[0].lease
        other.hello()  # a port it has, but no place in the job
        other.contribute(3, [1] * other.geometry.block_words)
        client.leave(other.ticket.nonce)
        again = form(client, 3)
        sum_one_round(again, 0)
        drops = {drop.reason: drop.count.packets for drop in client.stats().drops}
        assert drops["NOT_ADMITTED"] == 1
        close([*workers, *again, other])


def test_a_lease_has_the_jobs_lanes(system: System) -> None:
    address = system.controller.address("jobs on")
    with JobClient(address) as client:
        client.create_job("train", 1, lane_bits=8, lane_bound=127)
    with p4reduce.join("train", rank=0, world_size=1, controller=address) as comm:
        assert (comm.lease.lane_bits, comm.lease.lane_bound) == (8, 127)
        lanes = Lanes(np.array([127, -127], np.int8), comm.lease.lane_bits, bound=comm.lease.lane_bound)
        assert comm.all_reduce_segments([lanes])[0].tolist() == [127, -127]


@pytest.mark.fault("a rank's HELLO never arrives: LeaseTimeoutError names the rank and where it was expected")
def test_a_rank_whose_hello_never_arrives_is_named(system: System) -> None:
    with JobClient(system.controller.address("jobs on")) as client:
        client.create_job("train", 2)
        workers = [Worker(client, rank, 2) for rank in range(2)]
        with pytest.raises(LeaseTimeoutError, match="the HELLO of rank 1 never arrived through the switch"):
            while True:  # the first HELLO may still be on its way when the short wait ends
                workers[0].hello()
                try:
                    client.wait_lease(workers[0].ticket.nonce, 0.1)
                except LeaseTimeoutError as error:
                    if "ranks 0, 1" not in str(error):
                        raise
        close(workers)


@pytest.mark.fault(
    'SIGKILL of the switch, then another one: reset, "the switch restarted"; the job forms again with another epoch'
)
def test_the_switch_restarts(system: System) -> None:
    with JobClient(system.controller.address("jobs on")) as client:
        client.create_job("train", 2)
        workers = form(client, 2)
        sum_one_round(workers, 0)
        system.kill_switch()
        assert "the switch restarted" in until_reset(workers[0])
        system.start_switch()
        until_connected(client)
        again = form(client, 2)
        assert again[0].lease is not None
        assert again[0].lease.epoch > 1
        sum_one_round(again, 0)
        close([*workers, *again])


@pytest.mark.fault(
    "the largest election id for more than 1 s, nothing written: active jobs continue without a reset; "
    "LeaseTimeoutError of a forming job names the cause; leases are granted again after its owner has left"
)
def test_jobs_continue_while_another_controller_has_the_largest_election_id(system: System) -> None:
    """It writes nothing, and stays for longer than a switch may be away before the jobs are reset."""
    with JobClient(system.controller.address("jobs on")) as client:
        client.create_job("train", 2, slots=4)
        client.create_job("late", 1, slots=4)
        workers = form(client, 2)
        number = 0
        with Client(system.switch.address("P4Runtime"), election_id=elections.LARGEST):
            deadline, bids = time.monotonic() + LIMIT_S, 0
            while bids < 5:  # the pauses between them are 0.1, 0.2, 0.4 and 0.8 s
                bids = system.controller.log.read_text().count("switch has another primary")
                sum_one_round(workers, number)
                number += 1
                assert time.monotonic() < deadline
            late = Worker(client, 0, 1, job="late")
            late.hello()
            until_refused(late, r"the controller cannot change its switch .* largest election id")
        until_connected(client)
        sum_one_round(workers, number)
        assert [client.heartbeat(worker.ticket.nonce) for worker in workers] == [(False, "")] * 2
        job = client.get_job("train")
        assert (job.epoch, job.last_reset) == (1, "")
        late.hello()
        assert client.wait_lease(late.ticket.nonce, LIMIT_S).epoch == 2
        close([*workers, late])


@pytest.mark.fault(
    "SIGKILL or SIGTERM of the controller, then another one: sums continue without it; job, epoch and counts "
    "are unchanged"
)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_training_continues_over_a_restart_of_the_controller(system: System, number: signal.Signals) -> None:
    address = system.controller.address("jobs on")
    with JobClient(address) as client:
        client.create_job("train", 2)
        workers = form(client, 2)
        sum_one_round(workers, 0)
        system.controller.end(number)
        sum_one_round(workers, 1)  # the switch needs no controller to sum
        system.start_controller()
        sum_one_round(workers, 2)
        until_answered(client)
        assert [client.heartbeat(worker.ticket.nonce) for worker in workers] == [(False, "")] * 2
        assert client.get_job("train").epoch == 1
        assert client.stats("train").jobs[0].contributions.packets == 6
        client.leave(workers[1].ticket.nonce)
        again = form(client, 2)
        assert again[0].lease is not None
        assert again[0].lease.epoch == 2
        sum_one_round(again, 0)
        close([*workers, *again])


@pytest.mark.fault('SIGKILL of controller and switch: reset, "the switch restarted"; the job forms again')
def test_jobs_form_again_after_a_restart_of_controller_and_switch(system: System) -> None:
    with JobClient(system.controller.address("jobs on")) as client:
        client.create_job("train", 2)
        workers = form(client, 2)
        sum_one_round(workers, 0)
        system.controller.end(signal.SIGKILL)
        system.kill_switch()
        system.start_switch()
        system.start_controller()
        until_answered(client)
        assert "the switch restarted" in client.get_job("train").last_reset
        again = form(client, 2)
        assert again[0].lease is not None
        assert again[0].lease.epoch == 2
        sum_one_round(again, 0)
        close([*workers, *again])


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
        assert first.take_over(7, [], 0) is None
        first.start_afresh(7)
        for draws, grant in enumerate(grants, 1):
            first.install(grant, draws)
        first.client.close()
        second = _entry_writer(address)
        second.client.connect()
        assert second.take_over(8, grants, 2) is None, "another era's"
        assert second.take_over(7, grants, 1) is None, "an epoch was drawn that this controller does not know"
        assert second.take_over(7, grants, 2) == {1, 2}
        assert second.take_over(7, grants[1:], 3) == {2}
        assert [entry.match["job"] for entry in second.client.read_table(V1MODEL.admit)] == [2]
        second.client.close()


def _entry_writer(address: str) -> EntryWriter:
    config, client, pipeline = Config(), Client(address, timeout_s=LIMIT_S), pipelines.read(find("small"))
    return EntryWriter(client, config.switches[0], pipeline, MacTable(config, config.switches[0], pipeline.names))


def _grant(number: int) -> Grant:
    address = Address(ingress_port=1 + number, mac=0x020000000A00 + number, ip=0x0A00000A + number, udp_port=4000)
    return Grant(1 + number, f"job{number}", 1 + number, SlotRange(4 * number, 4), rank_children((address,), (number,)))


def all_reduce(controller: str, job: str, values: list[int], epoch: int = 1) -> list[list[int]]:
    """Rank r gives values[r] in two places; what each rank gets."""

    def one(rank: int) -> list[int]:
        with p4reduce.join(job, rank=rank, world_size=len(values), controller=controller) as comm:
            assert comm.lease.epoch == epoch, "the controllers of a test draw the same"
            mine = np.full(2, values[rank], dtype=np.int32)
            return [int(word) for word in comm.all_reduce(mine, timeout_s=LIMIT_S)]

    with ThreadPoolExecutor(len(values)) as pool:
        return list(pool.map(one, range(len(values))))


@pytest.mark.fault("the controller restarts without its state: it clears the switch; no old round returns")
def test_a_controller_without_its_state_receives_no_old_sums(system: System) -> None:
    address = system.controller.address("jobs on")
    for state, values in (("state", [3, 4]), ("another", [500, 600])):
        if state != "state":
            assert system.controller.end() == 0
            system.start_controller(state=state)
        with JobClient(address) as client:
            client.create_job("train", 2)
        assert all_reduce(address, "train", values) == [[sum(values)] * 2] * 2


@pytest.mark.fault(
    "the controller's state is put back from a copy with an active job: it clears the switch, sums are right"
)
def test_a_controller_with_an_older_copy_of_its_state_receives_no_old_sums(system: System) -> None:
    address, state = system.controller.address("jobs on"), system.folder / "state"
    with JobClient(address) as client:
        client.create_job("active", 1, 4)
        client.create_job("train", 2, 4)
    active = p4reduce.join("active", rank=0, world_size=1, controller=address)
    shutil.copytree(state, system.folder / "copy")
    assert all_reduce(address, "train", [3, 4], epoch=2) == [[7, 7]] * 2
    system.controller.end(signal.SIGKILL)
    shutil.rmtree(state)
    (system.folder / "copy").rename(state)
    system.start_controller()
    assert all_reduce(address, "train", [500, 600], epoch=2) == [[1100, 1100]] * 2
    with pytest.raises(JobResetError, match="put back from a copy"):
        active.barrier()
    active.close(wait=False)


@pytest.mark.fault(
    'the switch is stopped for longer than the probes: reset, "lost its connection"; used again when it continues'
)
@pytest.mark.slow
def test_a_stopped_switch_is_detected_and_used_again_when_it_continues(system: System) -> None:
    with JobClient(system.controller.address("jobs on")) as client:
        client.create_job("train", 2)
        workers = form(client, 2)
        system.switch.process.send_signal(signal.SIGSTOP)
        try:
            assert "lost its connection" in until_reset(workers[0])
        finally:
            system.switch.process.send_signal(signal.SIGCONT)
        until_connected(client)
        again = form(client, 2)
        sum_one_round(again, 0)
        close([*workers, *again])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_controller_with_status_0(system: System, number: signal.Signals) -> None:
    with JobClient(system.controller.address("jobs on")) as client:
        client.create_job("train", 1)
        workers = form(client, 1)
    assert system.controller.end(number) == 0
    assert "Traceback" not in system.controller.log.read_text()
    close(workers)

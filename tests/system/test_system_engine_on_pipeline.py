"""The worker's engine against the real P4 program, executed, over a terrible network."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from p4reduce.errors import CollectiveTimeoutError
from p4reduce.testing.terrible_network import NetworkConditions, TerribleNetwork
from p4reduce_contracts.wire import AGGREGATION_PORT, SMALL, unpack
from p4reduce_switch.program import Program, Replica
from rigs.pipeline import ipv4_header, payload_of
from rigs.scenarios import JOB, build
from rigs.secret import rank_secret
from rigs.terrible_conditions import FIRST_ROUNDS, network_conditions

ARTIFACT = Path(__file__).parents[2] / "p4src" / "artifacts" / "v1model" / "small" / "p4reduce.json"
SLOTS = 16
SWITCH_MAC, SWITCH_IP = 0x02_00_00_00_00_01, 0x0A_00_00_FE
GROUP = 256 + JOB
RANKS_PER_PORT = 2
"""Two ranks share a port and an address, and differ by UDP port, as on a host with several GPUs."""


class PipelineSwitch:
    """Wraps payloads in Ethernet, IPv4 and UDP, and runs them through the compiled program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.epoch = 0

    def lease(self, epoch: int, world_size: int, slot_base: int, slot_count: int) -> None:
        """What the controller writes for a job, in place of what was there."""
        tables = self.program.tables
        admit, member = tables["MainIngress.admission.admit"], tables["MainEgress.address_reply.job_member"]
        address = tables["MainIngress.address.switch_address"]
        for table in (admit, member, address):
            for entry in list(table.entries()):
                table.delete(entry.match, entry.priority)
        address.insert((SWITCH_IP,), 0, "MainIngress.address.is_switch", (SWITCH_MAC,))
        full = (1 << world_size) - 1
        for rank in range(world_size):
            port, mac, ip, udp = self.place(rank)
            lease = (1 << rank, full, slot_base, slot_count, epoch, GROUP, 0)
            admit.insert((port, ip, udp, JOB, rank_secret(rank)), 0, "MainIngress.admission.admit_rank", lease)
            home = (mac, ip, udp, SWITCH_MAC, SWITCH_IP, rank_secret(rank))
            member.insert((JOB, rank), 0, "MainEgress.address_reply.address_to", home)
        replicas = [Replica(self.place(rank)[0], rank) for rank in range(world_size)]
        self.program.replication.multicast_groups[GROUP] = replicas
        self.ranks = {(self.place(rank)[0], self.place(rank)[3]): rank for rank in range(world_size)}

    @staticmethod
    def place(rank: int) -> tuple[int, int, int, int]:
        """(switch port, MAC, IPv4 address, UDP port) of a rank."""
        host = rank // RANKS_PER_PORT
        return 1 + host, 0x02_00_00_00_01_00 + host, 0x0A_00_00_01 + host, 40000 + rank

    def process(self, rank: int, payload: bytes) -> list[tuple[int, bytes]]:
        port, mac, ip, udp = self.place(rank)
        length = 8 + len(payload)
        frame = (
            SWITCH_MAC.to_bytes(6, "big")
            + mac.to_bytes(6, "big")
            + b"\x08\x00"
            + ipv4_header(ip, SWITCH_IP, length)
            + struct.pack(">HHHH", udp, AGGREGATION_PORT, length, 0)
            + payload
        )
        return [self.unwrap(*out) for out in self.program.process(port, frame)]

    def unwrap(self, port: int, frame: bytes) -> tuple[int, bytes]:
        """(rank, payload) of a frame the switch sent, every header field checked."""
        source, target = struct.unpack_from(">HH", frame, 34)
        rank = self.ranks[port, target]
        _, mac, ip, _ = self.place(rank)
        assert frame[:6] == mac.to_bytes(6, "big")
        assert frame[6:14] == SWITCH_MAC.to_bytes(6, "big") + b"\x08\x00"
        assert struct.unpack_from(">II", frame, 26) == (SWITCH_IP, ip)
        assert source == AGGREGATION_PORT
        answer = payload_of(frame)  # checks lengths and checksum
        unpack(SMALL, answer)
        return rank, answer


@pytest.fixture(scope="module")
def switch() -> Iterator[PipelineSwitch]:
    """One program for all examples: old epochs' leavings stay in its registers, as on a real switch."""
    yield PipelineSwitch(Program(ARTIFACT.read_bytes()))


def run(
    switch: PipelineSwitch, *, seed: int, world_size: int, slots: int, conditions: NetworkConditions, first_round: int
) -> None:
    switch.epoch += 1
    scenario = build(
        seed,
        world_size,
        SMALL,
        slots,
        largest=150,
        first_round=first_round,
        epoch=switch.epoch,
        collectives=2 + 3 * (seed % 2),
        refusals=0.2 * (seed % 2),
    )
    switch.lease(switch.epoch, world_size, SLOTS - slots, slots)
    scenario.check(TerribleNetwork(switch, scenario.members, conditions, seed).run())


@pytest.mark.fault(
    "loss of 0, 5 or 30 %, duplicates of 0, 10 or 40 %, up to 30 % late by up to 3 s, all at once, over the "
    "compiled program: retransmitted until it is complete"
)
@settings(
    max_examples=200,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    seed=st.integers(0, 2**32),
    world_size=st.integers(1, 8),
    slots=st.integers(1, 6),
    conditions=network_conditions(),
    first_round=FIRST_ROUNDS,
)
def test_every_rank_ends_with_the_reference_sum(
    *, switch: PipelineSwitch, seed: int, world_size: int, slots: int, conditions: NetworkConditions, first_round: int
) -> None:
    run(switch, seed=seed, world_size=world_size, slots=slots, conditions=conditions, first_round=first_round)


def test_counters_agree_with_what_was_sent_on_a_calm_network(switch: PipelineSwitch) -> None:
    counters = {name: switch.program.counters[f"MainIngress.{name}"] for name in ("contributions", "results")}
    before = {name: counter.read(JOB)[0] for name, counter in counters.items()}
    switch.epoch += 1
    scenario = build(5, 4, SMALL, SLOTS, epoch=switch.epoch, collectives=4)
    switch.lease(switch.epoch, 4, 0, SLOTS)
    network = TerribleNetwork(switch, scenario.members, NetworkConditions(delay_s=0.0005, jitter=0.1), 1)
    scenario.check(network.run())
    rounds = scenario.members[0].stats.rounds
    assert rounds > 8
    assert counters["results"].read(JOB)[0] - before["results"] == rounds
    assert counters["contributions"].read(JOB)[0] - before["contributions"] == 4 * rounds
    assert all(m.stats.retransmissions == 0 for m in scenario.members)


@pytest.mark.fault("a rank never calls: CollectiveTimeoutError names it")
def test_the_pending_frame_of_the_pipeline_names_an_absent_rank(switch: PipelineSwitch) -> None:
    switch.epoch += 1
    scenario = build(6, 4, SMALL, 4, epoch=switch.epoch, timeout_s=5.0)
    switch.lease(switch.epoch, 4, 0, 4)
    scenario.members[2].calls = []
    network = TerribleNetwork(switch, scenario.members, NetworkConditions(), 1)
    with pytest.raises(CollectiveTimeoutError, match=r"still waits for rank 2$") as caught:
        network.run()
    assert caught.value.missing_ranks == (2,)


@pytest.mark.fault("jobs one after the other with 1 % loss, 1 % duplicates, 2 % late, 3 ranks: all retransmitted")
@pytest.mark.slow
def test_jobs_one_after_the_other_with_loss_duplicates_and_reordering(switch: PipelineSwitch) -> None:
    conditions = NetworkConditions(drop=0.01, duplicate=0.01, late=0.02)
    for job in range(20):
        switch.epoch += 1
        scenario = build(job, 3, SMALL, 6, largest=400, epoch=switch.epoch, collectives=10)
        switch.lease(switch.epoch, 3, SLOTS - 6, 6)
        scenario.check(TerribleNetwork(switch, scenario.members, conditions, job).run())

"""The controller on a Tofino's P4Info: entries that the TNA program's P4Runtime server takes, and jobs that sum.

The switch is rigs/tna_switch.py: P4Runtime as the embedded switch serves it, the TNA program as P4 defines it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import p4reduce
from p4reduce_contracts.jobs.client import JobClient
from p4reduce_contracts.jobs.errors import InvalidRequestError
from p4reduce_contracts.wire.geometry import Geometry
from p4reduce_controller import config
from p4reduce_controller.p4runtime.client import Client
from p4reduce_controller.switches.entries.v1model import draws_mark
from p4reduce_controller.switches.program_names import TOFINO
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.entries import MeterConfig, MeterEntry
from rigs import wire
from rigs.fake_switch_client import Running, check_restarts, make_entry_writer, one_rank_grant, serving
from rigs.limits import LIMIT_S, wait_until
from rigs.local_switch import LocalSwitch
from rigs.pipeline import frame_with
from rigs.tna_switch import CHIPS, pipeline_folder, tna_switch

GEOMETRIES = {"tofino1-4x8": Geometry(4, 8), "tofino2-4x16": Geometry(4, 16)}


@dataclass
class Tofino:
    """A switch with the TNA program, and a controller of it."""

    geometry: Geometry
    switch: LocalSwitch
    controller: Running

    def entries(self, table: str) -> int:
        return len(list(self.program.tables[table].entries()))

    @property
    def program(self) -> Any:
        return self.switch.switch.program


@pytest.fixture(params=CHIPS)
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tofino]:
    with tna_switch(request.param) as switch:
        address, udp_port = switch.address("P4Runtime"), switch.address("UDP").rpartition(":")[2]
        text = (
            f"[switch]\npipeline = '{pipeline_folder(tmp_path / 'pipeline', request.param)}'\n"
            f"p4runtime = '{address}'\nudp_port = {udp_port}\nhellos_a_second = 1\nhello_burst = 20\n"
            f"[controller]\nlisten = '127.0.0.1:0'\nstate_dir = '{tmp_path / 'state'}'\n"
        )
        with serving(config.parse(text), cast(Any, Client(address, timeout_s=LIMIT_S))) as controller:
            yield Tofino(GEOMETRIES[request.param], switch, controller)


def drops(client: JobClient) -> dict[str, int]:
    return {drop.reason: drop.count.packets for drop in client.stats().drops}


def test_workers_sum_through_the_tna_program_until_their_job_is_removed(running: Tofino) -> None:
    """Nothing says Tofino but the controller's pipeline; sums are those of 32-bit words, to the bit."""
    values = [np.random.default_rng(rank).integers(-(2**31), 2**31, 500).astype(np.int32) for rank in range(3)]
    join = partial(p4reduce.join, "train", world_size=3, controller=running.controller.address, timeout_s=LIMIT_S)
    with JobClient(running.controller.address) as client, ThreadPoolExecutor(3) as pool, ExitStack() as stack:
        with pytest.raises(InvalidRequestError, match="1 to 8 ranks a job"):
            client.create_job("train", 9)
        client.create_job("train", 3, slots=4)
        comms = list(pool.map(lambda rank: join(rank=rank), range(3)))
        for comm in comms:
            stack.enter_context(comm)
        assert comms[0].lease.geometry == running.geometry
        sums = list(pool.map(lambda comm: comm.all_reduce(values[comm.rank], timeout_s=LIMIT_S).tolist(), comms))
        assert sums == [np.sum(values, axis=0, dtype=np.int32).tolist()] * 3
        of_job = client.stats("train").jobs[0]
        assert of_job.contributions.packets == 3 * of_job.results.packets > 0 == sum(drops(client).values())
        assert (running.entries(TOFINO.admit), running.entries(TOFINO.job_member)) == (6, 4)

        client.remove_job("train")
        wait_until(lambda: running.entries(TOFINO.admit) == 0)
        lease = comms[0].lease
        of_lease = {"job": lease.job_id, "epoch": lease.epoch, "secret": lease.switches[0].secret}
        frame = frame_with(running.geometry, {}, **of_lease)
        comms[0].over_switch.transport.send([wire.pack(running.geometry, frame)])
        wait_until(lambda: drops(client)["NOT_ADMITTED"] == 1)
        assert running.entries(TOFINO.job_member) == 1, "the number of epochs"
        assert list(running.program.replication.multicast_groups) == []


def test_addresses_are_learned_from_the_digest(running: Tofino) -> None:
    source, destination = 0x02000000AA01, 0x02000000AA02
    for _ in range(2):
        running.switch.switch.receive(
            300, destination.to_bytes(6, "big") + source.to_bytes(6, "big") + b"\x08\x01" + bytes(46)
        )
    wait_until(lambda: running.entries(TOFINO.learned) == running.entries(TOFINO.mac_table) == 1)
    (entry,) = running.program.tables[TOFINO.mac_table].entries()
    assert (entry.match[0].value, entry.call[1]) == (source, (300,))


def test_a_switchs_entries_are_kept_or_its_pipeline_is_set_anew(tmp_path: Path) -> None:
    """The controller compares what it reads of the switch with its own entries, two for each rank."""
    folder = pipeline_folder(tmp_path / "pipeline", "tofino1-4x8")
    with tna_switch("tofino1-4x8") as switch:
        second = check_restarts(
            lambda: make_entry_writer(Client(switch.address("P4Runtime"), timeout_s=LIMIT_S), folder)
        )
        client = cast(Client, second.client)
        cells = client.read(p4r.Entity(meter_entry={"meter_id": client.schema.meters[TOFINO.hello_rate].id}))
        limit = MeterConfig(100, 200, 100, 200)
        assert cells == [MeterEntry(TOFINO.hello_rate, port, limit) for port in range(512)]
        assert client.read(p4r.Entity(digest_entry={"digest_id": client.schema.digests[TOFINO.mac_learn].id}))
        second.remove(one_rank_grant(1))
        assert client.read_table(TOFINO.admit) == []
        assert client.read_table(TOFINO.job_member) == [draws_mark(2, TOFINO)]
        second.install(one_rank_grant(0), 3)
        second.cold_start(8)
        assert client.read_table(TOFINO.admit) == client.read_groups() == []
        client.close()

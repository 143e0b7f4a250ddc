"""The TNA program with a job admitted: what rigs/pipeline.py is for the v1model program."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, cast

from p4reduce_contracts import artifacts
from p4reduce_controller.jobs import tofino_entries
from p4reduce_controller.jobs.hello import Address
from p4reduce_controller.jobs.model import Grant, Parent, rank_children
from p4reduce_controller.jobs.slots import SlotRange
from p4reduce_controller.p4names import TOFINO
from p4reduce_controller.p4runtime.entries import TableEntry
from rigs.pipeline import (
    ARTIFACTS,
    EPOCH,
    GROUP,
    JOB,
    PARENT_INSTANCE,
    SLOT_BASE,
    SLOT_COUNT,
    SWITCH_IP,
    SWITCH_MAC,
    UP_GROUP,
    UPLINK_PORT,
    Host,
    PipelineRig,
    VersionState,
    rank_ip,
    rank_mac,
    rank_port,
    rank_udp_port,
)
from rigs.secret import rank_secret
from rigs.tna import TnaProgram

RANK_CELLS = 32768
"""Of Tofino 2's program; Tofino 1's has twice as many."""
GENERATIONS = {"tofino1-4x8": 1, "tofino2-4x16": 2}


@functools.cache
def _front_end(geometry_name: str) -> dict[str, Any]:
    path: Path = ARTIFACTS.parent / geometry_name / "front_end.json"
    return cast(dict[str, Any], json.loads(path.read_text()))


class TnaRig(PipelineRig):
    """The program as rigs/tna.py runs it; frames, answers and counters are PipelineRig's."""

    def __init__(self, geometry_name: str, world_size: int, *, parent: Host | None = None) -> None:
        geometry = artifacts.geometry(ARTIFACTS / geometry_name)
        self.geometry = geometry
        self.world_size, self.parent = world_size, parent
        self._slots = geometry.slots
        self.tna = TnaProgram(_front_end(geometry_name), GENERATIONS[geometry_name])
        self.insert("address.switch_address", (SWITCH_IP,), "is_switch", (SWITCH_MAC,))
        self.insert("address.own_ip", (SWITCH_IP,), "claims_ip", ())
        self.insert("address.own_mac", (SWITCH_MAC,), "claims_mac", ())
        for rank in range(world_size):
            self.admit(rank)
            address = (rank_mac(rank), rank_ip(rank), rank_udp_port(rank), SWITCH_MAC, SWITCH_IP, rank_secret(rank))
            member = "MainEgress.address_reply"
            self.tna.insert(f"{member}.job_member", (JOB, rank), f"{member}.address_to", address)
        self.tna.groups[GROUP] = [(rank_port(rank), rank) for rank in range(world_size)]
        if parent is not None:
            self._admit_parent(parent)

    def insert(self, table: str, match: tuple[int, ...], action: str, params: tuple[int, ...]) -> None:
        control = table.split(".")[0]
        self.tna.insert(f"MainIngress.{table}", match, f"MainIngress.{control}.{action}", params)

    def _admit_parent(self, parent: Host) -> None:
        """Write what a leaf has beside its ranks' entries."""
        address = (parent.mac, parent.ip, parent.udp_port, SWITCH_MAC, SWITCH_IP, parent.secret)
        member = "MainEgress.address_reply"
        self.tna.insert(f"{member}.job_member", (JOB, PARENT_INSTANCE), f"{member}.address_to", address)
        self.tna.groups[UP_GROUP] = [(UPLINK_PORT, PARENT_INSTANCE)]
        self._write_parent(EPOCH)

    def _write_parent(self, epoch: int) -> None:
        self._write(self._admission(epoch, SLOT_BASE)[2 * self.world_size :])

    def admit(self, rank: int, epoch: int = EPOCH, slot_base: int = SLOT_BASE) -> None:
        """Write the rank's two entries, as the controller makes them."""
        self._write(self._admission(epoch, slot_base)[2 * rank : 2 * rank + 2])

    def _admission(self, epoch: int, slot_base: int) -> list[TableEntry]:
        addresses = tuple(
            Address(rank_port(other), rank_mac(other), rank_ip(other), rank_udp_port(other))
            for other in range(self.world_size)
        )
        secrets = tuple(map(rank_secret, range(self.world_size)))
        parent = None
        if (host := self.parent) is not None:
            parent = Parent("root", Address(UPLINK_PORT, host.mac, host.ip, host.udp_port), host.secret)
        grant = Grant(JOB, "rig", epoch, SlotRange(slot_base, SLOT_COUNT), rank_children(addresses, secrets), parent)
        return tofino_entries.admission(grant, TOFINO, tofino_entries.Registers(self._slots, RANK_CELLS))

    def _write(self, entries: list[TableEntry]) -> None:
        for entry in entries:
            self.tna.insert(entry.table, tuple(entry.match.values()), entry.action, tuple(entry.params.values()))

    def renew(self, epoch: int) -> None:
        for rank in range(self.world_size):
            self.admit(rank, epoch)
        self._write_parent(epoch)

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Return (port, frame) of everything that comes out when the frame comes in there."""
        return self.tna.process(port, frame)

    def version_state(self, slot: int, version: int) -> VersionState:
        index = version * self._slots + SLOT_BASE + slot
        cells = {name.removeprefix("MainIngress."): cells[index] for name, cells in self.tna.registers.items()}
        tag, again = cells["tags.tags"].values, cells["tags.tags_again"].values
        assert tag == again, "the two copies of a tag differ"
        columns, words = range(self.geometry.columns), range(self.geometry.block_words)
        return VersionState(
            tag["epoch"],
            tag["round"],
            cells["slot_state.seen"],
            cells["slot_state.held"],
            cells["check_word.checks"],
            tuple(cells[f"column_key_{column}.keys"] for column in columns),
            tuple(tuple(cells[f"column_{column}.sums_{word}"] for word in words) for column in columns),
        )

    def drops(self) -> dict[int, int]:
        return dict(self.tna.counters["MainIngress.dropping.drops"])

    def job_count(self, counter: str) -> int:
        return self.tna.counters[TOFINO.job_counters[counter]][JOB]

"""The TNA program with a job admitted: what rigs/pipeline.py is for the v1model program."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from p4reduce_contracts import artifacts
from p4reduce_controller.switches.entries import tofino, v1model
from p4reduce_controller.switches.program_names import FLOOD_GROUP, TOFINO
from p4reduce_runtime.p4runtime.entries import TableEntry
from rigs import wire
from rigs.pipeline import (
    ARTIFACTS,
    EPOCH,
    JOB,
    SLOT_BASE,
    SLOT_COUNT,
    Host,
    PipelineRig,
    VersionState,
    rank_host,
    switch_config,
)
from rigs.secret import rank_secret
from rigs.tna import TnaProgram

RANK_CELLS = 32768
"""Cells for ranks in Tofino 2's program; Tofino 1's has twice as many."""
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
        self.world_size, self.parent, self.slot_count = world_size, parent, SLOT_COUNT
        self.children = [rank_host(rank, rank_secret(rank)) for rank in range(world_size)]
        self._slots = geometry.slots
        self.tna = TnaProgram(_front_end(geometry_name), GENERATIONS[geometry_name])
        own, grant = switch_config(), self._grant(EPOCH)
        self.tna.groups |= {group.group_id: list(group.replicas) for group in v1model.groups(grant)}
        self._write(v1model.switch_address(own, TOFINO))
        self._write(v1model.members(grant, own, TOFINO))
        self._write(self._admission(EPOCH, SLOT_BASE))

    def insert(self, table: str, match: tuple[int, ...], action: str, params: tuple[int, ...]) -> None:
        control = table.split(".")[0]
        self.tna.insert(f"MainIngress.{table}", match, f"MainIngress.{control}.{action}", params)

    def admit(self, rank: int, epoch: int = EPOCH, slot_base: int = SLOT_BASE) -> None:
        """Write the rank's two entries, as the controller makes them."""
        self._write(self._admission(epoch, slot_base)[2 * rank : 2 * rank + 2])

    def flood_to(self, ports: Sequence[int]) -> None:
        self.tna.groups[FLOOD_GROUP] = [(port, 0) for port in ports]

    def _admission(self, epoch: int, slot_base: int) -> list[TableEntry]:
        return tofino.admission(self._grant(epoch, slot_base), TOFINO, tofino.Registers(self._slots, RANK_CELLS))

    def _write(self, entries: Sequence[TableEntry]) -> None:
        for entry in entries:
            self.tna.insert(entry.table, tuple(entry.match.values()), entry.action, tuple(entry.params.values()))

    def renew(self, epoch: int) -> None:
        self._write(self._admission(epoch, SLOT_BASE))

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
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

    def drops(self) -> dict[str, int]:
        counted = self.tna.counters["MainIngress.dropping.drops"]
        return {wire.DROP_REASONS[reason]: count for reason, count in counted.items()}

    def job_count(self, counter: str) -> int:
        return self.tna.counters[TOFINO.job_counters[counter]][JOB]

"""The TNA program behind UDP ports and a P4Runtime server: what a controller finds where Stratum runs on a Tofino.

The server is the embedded switch's; the program is Tofino's, by its own P4Info. What it loads is the message that
Stratum loads, with stand-ins for two of its files: in the binary's place what p4c's front end made of the program
(front_end.json, which rigs/tna.py runs), in that of context.json the P4Info.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from p4reduce_controller.p4runtime.tofino_config import BfPipelineConfig
from p4reduce_runtime.p4runtime.schema import Schema, TableInfo
from p4reduce_runtime.pipeline_folders import GEOMETRY, P4INFO, TOFINO_BINARY, TOFINO_CONTEXT, TOFINO_SCHEMA
from p4reduce_switch.program import ProgramError
from p4reduce_switch.program.ir import program as ir
from p4reduce_switch.program.ir.build import constant
from p4reduce_switch.program.memory import TableWord
from p4reduce_switch.program.state.replication import Replication
from p4reduce_switch.program.state.stateful import GREEN, RED, YELLOW, Meter
from p4reduce_switch.program.state.tables import Table
from p4reduce_switch.program.traffic import DigestHandler
from p4reduce_switch.switch import Switch
from rigs.local_switch import LocalSwitch
from rigs.tna import TnaProgram

ARTIFACTS = Path(__file__).resolve().parents[2] / "p4src/artifacts"
CPU_PORTS = {"tofino1-4x8": 192, "tofino2-4x16": 0}
"""Chip -> the number of its CPU port, as in p4src/tna/headers.p4."""
CHIPS = tuple(CPU_PORTS)
_COLORS = {GREEN: 0, YELLOW: 1, RED: 3}
"""A meter's colours as Tofino writes them."""
_GENERATIONS = {"tna": 1, "t2na": 2}


def table_of(info: TableInfo, schema: Schema) -> Table:
    """Return a table that the control plane writes: the embedded switch's."""
    actions = [schema.actions.find(id) for id in info.action_ids]
    declared = ir.Table(
        name=info.name,
        keys=tuple(ir.Key(key.name, ir.MatchKind(key.kind), key.bitwidth, constant(0)) for key in info.keys),
        max_size=info.size,
        actions=tuple(
            ir.Action(
                action.id,
                action.name,
                ()
                if action.id in info.default_only
                else tuple((param.name, param.bitwidth) for param in action.params),
                (),
            )
            for action in actions
        ),
        default=None,
        default_is_const=info.const_default,
        entries=(),
        has_direct_counter=False,
        direct_meter=None,
        supports_timeout=False,
    )
    return Table(declared, np.zeros(len(TableWord), np.int64), None, 0)


class TnaCounter:
    """A counter of TnaProgram, which counts no bytes."""

    def __init__(self, counts: dict[int, int], size: int) -> None:
        self._counts = counts
        self.size = size

    def read(self, index: int) -> tuple[int, int]:
        return self._counts[index], 0

    def write(self, index: int, packets: int, bytes_: int) -> None:
        self._counts[index] = packets


class TnaPipeline:
    """A TNA program with the interface that p4reduce_switch.program.Program has for a v1model program."""

    batch = None
    queues = None

    def __init__(self, device_config: Any) -> None:
        """Load a serialized BfPipelineConfig."""
        config = BfPipelineConfig.FromString(device_config)
        if len(config.profiles) != 1 or list(config.profiles[0].pipe_scope) != [0, 1, 2, 3]:
            raise ProgramError("not one program for all pipes")
        profile = config.profiles[0]
        schema = Schema.from_p4info(profile.context.decode())
        self.tna = TnaProgram(json.loads(profile.binary), _GENERATIONS[schema.p4info.pkg_info.arch])
        self.on_digest: DigestHandler | None = None
        self.tables: dict[str, Any] = {
            info.name: table_of(info, schema) for info in schema.tables if info.keys and not info.const
        }
        counters = {counter.preamble.name: counter.size for counter in schema.p4info.counters}
        self.counters = {name: TnaCounter(self.tna.counters[name], size) for name, size in counters.items()}
        (hello_rate,) = schema.meters
        meter = Meter(hello_rate.name, hello_rate.size, hello_rate.unit)
        self.tna.color_of = lambda index: _COLORS[meter.execute(index, 0)]
        self.meters = {hello_rate.name: meter}
        self.registers: Mapping[str, Any] = {}
        self.value_sets: Mapping[str, Any] = {}
        self.action_profiles: Mapping[str, Any] = {}
        self.replication = Replication()
        (self._digest,) = (digest.name for digest in schema.digests)

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        groups = self.replication.multicast_groups
        self.tna.groups = {id: [(replica.port, replica.instance) for replica in groups[id]] for id in groups}
        for name, table in self.tables.items():
            entries = {tuple(test.value for test in entry.match): entry.call for entry in table.entries()}
            self.tna.tables[name].written = entries
        sent = self.tna.process(port, frame)
        digests, self.tna.digests = self.tna.digests, []
        for fields in digests:
            if self.on_digest is not None:
                self.on_digest(self._digest, [tuple(value for value, _ in fields)])
        return sent

    def collect(self, thread: int = 0) -> None:
        raise AssertionError("there is no native batch")


def pipeline_folder(folder: Path, chip: str) -> Path:
    """A pipeline folder like those of out/tofino, with the files that TnaPipeline takes for the binary and context."""
    folder.mkdir()
    for file in (P4INFO, GEOMETRY):
        shutil.copy(ARTIFACTS / chip / file, folder)
    shutil.copy(ARTIFACTS / chip / "front_end.json", folder / TOFINO_BINARY)
    shutil.copy(ARTIFACTS / chip / P4INFO, folder / TOFINO_CONTEXT)
    (folder / TOFINO_SCHEMA).write_text(json.dumps({"tables": []}))
    return folder


@contextlib.contextmanager
def tna_switch(chip: str) -> Iterator[LocalSwitch]:
    """Serve until the block ends; the switch's program is the TnaPipeline that a controller has brought."""
    switch = LocalSwitch(switch=Switch(cpu_port=CPU_PORTS[chip]), load_program=TnaPipeline)
    with contextlib.closing(switch):
        yield switch

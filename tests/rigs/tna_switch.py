"""The TNA program behind UDP ports and a P4Runtime server: what a controller finds where Stratum runs on a Tofino.

The server is the embedded switch's; the program is Tofino's, by its own P4Info.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from p4reduce_runtime.pipeline_folders import GEOMETRY, P4INFO, TOFINO_BINARY, TOFINO_CONTEXT, TOFINO_SCHEMA
from p4reduce_switch.p4runtime import Server
from p4reduce_switch.ports.udp import UdpUnderlay
from p4reduce_switch.switch import Switch
from rigs.limits import LIMIT_S
from rigs.ports import own_address
from rigs.system import Process
from rigs.tna_program import TnaPipeline

ARTIFACTS = Path(__file__).resolve().parents[2] / "p4src/artifacts"
CPU_PORTS = {"tofino1-4x8": 192, "tofino2-4x16": 0}
"""By chip, as p4src/tna/headers.p4 has them."""
CHIPS = tuple(CPU_PORTS)


def pipeline_folder(folder: Path, chip: str) -> Path:
    """A pipeline folder like those of out/tofino, with the files that TnaPipeline takes for the binary and context."""
    folder.mkdir()
    for file in (P4INFO, GEOMETRY):
        shutil.copy(ARTIFACTS / chip / file, folder)
    shutil.copy(ARTIFACTS / chip / "front_end.json", folder / TOFINO_BINARY)
    shutil.copy(ARTIFACTS / chip / P4INFO, folder / TOFINO_CONTEXT)
    (folder / TOFINO_SCHEMA).write_text(json.dumps({"tables": []}))
    return folder


class TnaSwitch:
    """One that serves; ranks reach it at `udp_port` of loopback."""

    def __init__(self, chip: str) -> None:
        cpu_port = CPU_PORTS[chip]
        self._switch = Switch(cpu_port=cpu_port)
        underlay = UdpUnderlay(("127.0.0.1", 0), cpu_port=cpu_port, in_use=self._switch.ports_in_use)
        self._switch.add_ports(underlay)
        self._server = Server(self._switch, "127.0.0.1:0", cast(Any, TnaPipeline))
        self._server.start()
        self._frames = threading.Thread(target=self._switch.run)
        self._frames.start()
        self.p4runtime = f"127.0.0.1:{self._server.port}"
        self.udp_port = underlay.address[1]

    @property
    def program(self) -> Any:
        """The TnaPipeline that a controller has brought."""
        return self._switch.program

    def receive(self, port: int, frame: bytes) -> None:
        """A frame comes in at a port that is no rank's."""
        self._switch.receive(port, frame)

    def close(self) -> None:
        self._switch.stop()
        self._frames.join(LIMIT_S)
        self._server.stop()
        self._switch.close()


@contextlib.contextmanager
def tna_switch(chip: str) -> Iterator[TnaSwitch]:
    switch = TnaSwitch(chip)
    try:
        yield switch
    finally:
        switch.close()


def start_controller(folder: Path, switch: TnaSwitch, pipeline: Path, listen: str = "") -> Process:
    """`p4reduce controller run`; its state is in `folder`, so that the next one takes the jobs up."""
    config = folder / "p4reduce.toml"
    config.write_text(
        f"[switch]\npipeline = '{pipeline}'\np4runtime = '{switch.p4runtime}'\nudp_port = {switch.udp_port}\n"
        "hellos_a_second = 1\nhello_burst = 20\n"
        f"[controller]\nlisten = '{listen or own_address()}'\nstate_dir = '{folder / 'state'}'\n"
        "heartbeat_interval_s = 0.2\nheartbeat_timeout_s = 60\n"
    )
    return Process(folder / "controller.log", "controller", "run", "--config", str(config))

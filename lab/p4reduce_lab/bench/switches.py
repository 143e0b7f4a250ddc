"""Switch processes that are programmed from here, without a controller: one job, and frames made by `load.py`."""

from __future__ import annotations

from collections.abc import Sequence

from p4reduce_controller.config import Config, SwitchConfig
from p4reduce_controller.p4runtime.client import Client
from p4reduce_controller.registry.job import Grant
from p4reduce_controller.switches import pipeline as pipelines
from p4reduce_controller.switches.entry_writer import EntryWriter
from p4reduce_controller.switches.mac_table import MacTable
from p4reduce_lab import targets
from p4reduce_lab.addresses import answers, free_address
from p4reduce_lab.processes import P4REDUCE, Child, Children
from p4reduce_runtime import pipeline_folders

GEOMETRY = "default"
EMBEDDED = "embedded switch"
"""Its name in the results."""
_READY_S = 60.0
_ANSWER_S = 20.0


class SwitchProcess:
    """A running switch with our program; `install` admits a job."""

    def __init__(self, child: Child, p4runtime: str) -> None:
        """Wait until it answers at `p4runtime`, and give it our program.

        Raises ProcessError or P4RuntimeError.
        """
        child.wait_ready(lambda: answers(p4runtime), _READY_S)
        self.child = child
        self._client = Client(p4runtime, timeout_s=_ANSWER_S)
        self._client.connect()
        pipeline = pipelines.read(pipeline_folders.find(GEOMETRY))
        mac_table = MacTable(Config(), SwitchConfig(), pipeline.names)
        self._entry_writer = EntryWriter(self._client, SwitchConfig(), pipeline, mac_table)
        self._entry_writer.cold_start(1)

    def install(self, grant: Grant) -> None:
        """Write a job's entries."""
        self._entry_writer.install(grant, draws=1)

    def close(self) -> None:
        """End the connection; the process is its starter's."""
        self._client.close()


def over_udp(children: Children, name: str, listen: str) -> SwitchProcess:
    """Start an embedded switch with UDP peers at HOST:PORT `listen`."""
    p4runtime = free_address()
    command = [*P4REDUCE, "switch", "run", "--listen", listen, "--p4runtime", p4runtime]
    return SwitchProcess(children.start(name, command), p4runtime)


def on_interfaces(children: Children, name: str, target: str, interfaces: Sequence[str]) -> SwitchProcess:
    """Start a switch of targets.TARGETS with these interfaces as ports 1 and on."""
    p4runtime = free_address()
    ports = [f"{number}@{interface}" for number, interface in enumerate(interfaces, 1)]
    return SwitchProcess(children.start(name, targets.command(target, ports, p4runtime)), p4runtime)

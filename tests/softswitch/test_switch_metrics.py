"""The switch's metrics: every counter inside is one outside."""

from __future__ import annotations

import dataclasses
import re
import socket
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from conformance.case import PROGRAMS
from p4reduce_contracts.wire import pack_hello
from p4reduce_runtime.metrics import Sample
from p4reduce_runtime.records import zeros
from p4reduce_switch.datapath.ethernet import Interface
from p4reduce_switch.metrics import samples
from p4reduce_switch.p4runtime import Server
from p4reduce_switch.ports.ethernet import EthernetPorts, InterfaceCounters
from p4reduce_switch.ports.udp import UdpUnderlay, UnderlayCounters
from p4reduce_switch.program import Program, QueueSetting
from p4reduce_switch.switch import Switch
from rigs.limits import LIMIT_S
from rigs.p4rt import Raw, served
from rigs.system import Process

IN_FRAMES = 'p4reduce_switch_in_frames_total{kind="udp",port=""} 1.0'
NO_PROGRAM = "p4reduce_switch_no_program_frames_total 1.0"


def value(found: list[Sample], name: str, *labels: str) -> float:
    (sample,) = [sample for sample in found if sample.metric.name == name and sample.labels == labels]
    return sample.value


def test_controllers_that_are_connected() -> None:
    with served() as running, Raw(running.address) as raw:
        assert value(samples(running.switch, running.server), "p4reduce_switch_controllers") == 0
        assert raw.arbitrate().status.code == 0
        found = samples(running.switch, running.server)
    assert (value(found, "p4reduce_switch_controllers"), value(found, "p4reduce_switch_primary")) == (1, 1)


@pytest.mark.parametrize("kind", [UnderlayCounters, InterfaceCounters])
def test_every_internal_counter_is_a_metric(kind: Any) -> None:
    """Each counter gets a number of its own, and all the numbers come out."""
    switch = Switch()
    numbers = iter(range(1000, 2000))
    given = set()
    ports: UdpUnderlay | EthernetPorts
    if kind is UnderlayCounters:
        ports = UdpUnderlay(("127.0.0.1", 0))
        native: Any = ports._native_counters[0]
    else:
        ports = EthernetPorts({})
        native = ports._native[3] = zeros(Interface)[0]
    switch.add_ports(ports)
    server = Server(switch, "127.0.0.1:0")
    for field in dataclasses.fields(kind):
        given.add(number := next(numbers))
        if field.name in native.dtype.names:
            native[field.name] = number
        else:
            setattr(ports._counters, field.name, number)  # type: ignore[union-attr]
    for name in ("frames_failed", "frames_to_no_port", "frames_without_program", "packet_ins", "packet_outs"):
        given.add(number := next(numbers))
        setattr(switch, name, number)
    given.add(number := next(numbers))
    server.packet_in_dropped = number
    queued = Program((PROGRAMS / "timed" / "queues.json").read_bytes())
    switch.install(queued)
    assert queued.queues is not None
    given.add(number := next(numbers))
    queued.queues.set_depth(QueueSetting(0), now_ns=0)
    for _ in range(number):
        queued.queues.push(3, 0, None, now_ns=0)
    found = samples(switch, server)
    server.stop()
    switch.close()
    assert given - {sample.value for sample in found} == set()
    names = [(sample.metric.name, sample.labels) for sample in found if sample.metric.name != "p4reduce_switch_ports"]
    assert len(names) == len(set(names))
    assert all(len(sample.labels) == len(sample.metric.labels) for sample in found)


def scraped(url: str) -> list[str]:
    with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
        return str(answer.read().decode()).splitlines()


@pytest.mark.processes
def test_the_switch_command_serves_metrics(tmp_path: Path) -> None:
    process = Process(
        tmp_path / "log", "switch", "run", "--listen", "127.0.0.1:0", "--p4runtime", "127.0.0.1:0",
        "--metrics", "127.0.0.1:0", "--log-json",
    )  # fmt: skip
    assert re.fullmatch(r"switch 1 ready: UDP \S+; P4Runtime \S+; pipeline none yet.*\n", process.first_line)
    try:
        host, _, port = process.address("UDP").rpartition(":")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as worker:
            worker.connect((host, int(port)))
            worker.send(pack_hello(1, 2))
            url, deadline = f"http://{process.address('metrics')}/metrics", time.monotonic() + LIMIT_S
            counted = {IN_FRAMES, NO_PROGRAM}
            while not counted <= set(text := scraped(url)):
                assert time.monotonic() < deadline, text
    finally:
        assert process.end() == 0
    assert '"event": "port given"' in (tmp_path / "log").read_text()

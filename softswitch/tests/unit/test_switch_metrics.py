"""The switch's metrics: every counter inside is one outside."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from conformance.case import PROGRAMS
from p4reduce_runtime.metrics import Sample
from p4reduce_runtime.records import zeros
from p4reduce_switch.datapath.ethernet import Interface
from p4reduce_switch.metrics import samples
from p4reduce_switch.ports.ethernet import EthernetPorts, InterfaceCounters
from p4reduce_switch.ports.udp import UdpUnderlay, UnderlayCounters
from p4reduce_switch.program import Program, QueueSetting
from p4reduce_switch.switch import Switch
from rigs.p4rt import Raw, served


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
    for field in dataclasses.fields(kind):
        given.add(number := next(numbers))
        if field.name in native.dtype.names:
            native[field.name] = number
        else:
            setattr(ports._counters, field.name, number)  # type: ignore[union-attr]
    for name in ("frames_failed", "frames_to_no_port", "frames_without_program", "packet_ins", "packet_outs"):
        given.add(number := next(numbers))
        setattr(switch, name, number)
    queued = Program((PROGRAMS / "timed" / "queues.json").read_bytes())
    switch.install(queued)
    assert queued.queues is not None
    given.add(number := next(numbers))
    queued.queues.set_depth(QueueSetting(0), now_ns=0)
    for _ in range(number):
        queued.queues.push(3, 0, None, now_ns=0)
    with served(switch) as running:
        given.add(number := next(numbers))
        running.server.packet_in_dropped = number
        found = samples(switch, running.server)
    assert given - {sample.value for sample in found} == set()
    names = [(sample.metric.name, sample.labels) for sample in found if sample.metric.name != "p4reduce_switch_ports"]
    assert len(names) == len(set(names))
    assert all(len(sample.labels) == len(sample.metric.labels) for sample in found)

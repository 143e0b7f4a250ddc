"""The switch's metrics: counters of its ports, its program and its P4Runtime server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from p4reduce_runtime import metrics
from p4reduce_runtime.metrics import Sample
from p4reduce_switch.p4runtime import Server
from p4reduce_switch.ports.ethernet import EthernetPorts
from p4reduce_switch.ports.udp import UdpUnderlay
from p4reduce_switch.switch import Switch

_UDP: Final = ("udp", "")
_CPU: Final = ("cpu", "")
_QUEUES: Final = ("queues", "")


def samples(switch: Switch, server: Server) -> list[Sample]:
    """Return the present values."""
    found = [*_of_switch(switch), *_of_server(server)]
    if isinstance(switch.ports, UdpUnderlay):
        found += _of_underlay(switch.ports)
    elif isinstance(switch.ports, EthernetPorts):
        found += _of_interfaces(switch.ports)
    return found


def _of_switch(switch: Switch) -> Iterator[Sample]:
    yield Sample(metrics.FAILED_FRAMES, switch.frames_failed)
    yield Sample(metrics.NO_PORT_FRAMES, switch.frames_to_no_port)
    yield Sample(metrics.NO_PROGRAM_FRAMES, switch.frames_without_program)
    queues = None if switch.program is None else switch.program.queues
    if queues is not None:
        yield Sample(metrics.LOST_FRAMES, queues.dropped, (*_QUEUES, "queue_full"))
    yield Sample(metrics.IN_FRAMES, switch.packet_outs, _CPU)
    yield Sample(metrics.OUT_FRAMES, switch.packet_ins, _CPU)


def _of_server(server: Server) -> Iterator[Sample]:
    counted = server.counters()
    yield Sample(metrics.DROPPED_PACKET_INS, counted.packet_in_dropped)
    yield Sample(metrics.DROPPED_DIGESTS, counted.digests_dropped)
    yield Sample(metrics.SLOW_CONTROLLER, counted.slow_controller)
    yield Sample(metrics.CONTROLLERS, counted.controllers)
    yield Sample(metrics.PRIMARY, counted.primary)
    for reason, times in counted.refusals.items():
        yield Sample(metrics.REFUSED_ORDERS, times, (reason,))


def _of_underlay(underlay: UdpUnderlay) -> Iterator[Sample]:
    counters = underlay.counters
    yield Sample(metrics.IN_FRAMES, counters.datagrams_in, _UDP)
    yield Sample(metrics.IN_BYTES, counters.bytes_in, _UDP)
    yield Sample(metrics.OUT_FRAMES, counters.datagrams_out, _UDP)
    yield Sample(metrics.OUT_BYTES, counters.bytes_out, _UDP)
    for reason in ("not_for_peer", "send_buffer_full", "send_errors"):
        yield Sample(metrics.LOST_FRAMES, getattr(counters, reason), (*_UDP, reason))
    for reason in ("no_hello", "no_free_port"):
        yield Sample(metrics.REFUSED_DATAGRAMS, getattr(counters, reason), (reason,))
    yield Sample(metrics.EVICTED_PORTS, counters.evicted_ports)
    yield Sample(metrics.PORTS, underlay.peers)


def _of_interfaces(ports: EthernetPorts) -> Iterator[Sample]:
    for port, counters in ports.counters.items():
        labels = ("ethernet", str(port))
        yield Sample(metrics.IN_FRAMES, counters.frames_in, labels)
        yield Sample(metrics.IN_BYTES, counters.bytes_in, labels)
        yield Sample(metrics.OUT_FRAMES, counters.frames_out, labels)
        yield Sample(metrics.OUT_BYTES, counters.bytes_out, labels)
        yield Sample(metrics.LOST_FRAMES, counters.send_errors, (*labels, "send_errors"))
    yield Sample(metrics.PORTS, len(ports.counters))

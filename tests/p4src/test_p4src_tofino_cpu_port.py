"""Tofino 1's program on the model of its chip, with the CPU's Ethernet port: its frames do not reach the drivers."""

from __future__ import annotations

from typing import Final

from rigs import wire
from rigs.pipeline import JOB, rank_port, udp_frame
from rigs.tofino_model import NEEDS_MODEL, ModelRig, TofinoModel

pytestmark = NEEDS_MODEL
ETHERNET_CPU_PORT: Final = 64
HOST = 3


def test_controllers_frames_have_their_port_in_front(tofino_model: TofinoModel) -> None:
    """A HELLO leaves the CPU's port, and what comes to that port leaves the one that it names."""
    rig, hello = ModelRig(tofino_model, 2), udp_frame(1, wire.pack_hello(JOB, 0x1122334455667788))
    assert rig.process(rank_port(1), hello) == []
    assert tofino_model.receive(ETHERNET_CPU_PORT) == rank_port(1).to_bytes(2, "big") + hello
    tofino_model.send(ETHERNET_CPU_PORT, HOST.to_bytes(2, "big") + hello)
    assert tofino_model.receive(HOST) == hello

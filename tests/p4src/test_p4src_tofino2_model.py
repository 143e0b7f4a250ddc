"""Tofino 2's program on the model of its chip: the frames that Tofino 1's gets."""

from __future__ import annotations

from typing import Final

from rigs import wire
from rigs.limits import LIMIT_S
from rigs.pipeline import rank_port, udp_frame
from rigs.tofino_model import NEEDS_MODEL, ModelRig, TofinoModel, check_answers

pytestmark = NEEDS_MODEL
CHIP: Final = "tofino2-4x16"


def test_damaged_frames_get_the_answers_of_v1model(tofino_model: TofinoModel) -> None:
    check_answers(tofino_model, 4, 1_000)


def test_a_hello_goes_to_the_controller_and_a_packet_out_to_its_port(tofino_model: TofinoModel) -> None:
    rig = ModelRig(tofino_model, 2)
    hello = udp_frame(1, wire.pack_hello(7, 0x1122334455667788))
    assert rig.process(rank_port(1), hello) == []
    payload, metadata = tofino_model.packets.get(timeout=LIMIT_S)
    assert (payload, metadata["ingress_port"]) == (hello, tofino_model.first_port + rank_port(1))
    tofino_model.client.packet_out(hello, tofino_model.first_port + 3)
    assert tofino_model.receive(3) == hello

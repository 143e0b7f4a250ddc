"""Tofino 2's program on the model of its chip: the frames that Tofino 1's gets."""

from __future__ import annotations

from typing import Final

from rigs.tofino_model import NEEDS_MODEL, TofinoModel, check_answers, check_controller_port

pytestmark = NEEDS_MODEL
CHIP: Final = "tofino2-4x16"


def test_damaged_frames_get_the_answers_of_v1model(tofino_model: TofinoModel) -> None:
    check_answers(tofino_model, 4, 1_000)


def test_a_hello_goes_to_the_controller_and_a_packet_out_to_its_port(tofino_model: TofinoModel) -> None:
    check_controller_port(tofino_model)

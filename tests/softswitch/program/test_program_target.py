"""Options of simple_switch that are compiled into a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from p4reduce_switch.program import Program, TargetOptions

PROGRAMS = Path(__file__).parents[2] / "conformance" / "programs"


@pytest.mark.parametrize("drop_port", [511, 500, 2])
def test_frames_to_the_drop_port_and_those_marked_to_drop_are_dropped(drop_port: int) -> None:
    """By byte: 0 port 1; 1 marked, 3 sent to 511, 4 marked in egress; 2 sent to 2 after the mark; 6 marked."""
    program = Program((PROGRAMS / "drop.json").read_bytes(), TargetOptions(drop_port=drop_port))
    expected = {0: 1, 1: None, 2: 2, 3: 511, 4: None, 6: None}
    for byte, port in expected.items():
        outputs = program.process(3, bytes([byte]))
        assert outputs == ([] if port is None or port == drop_port else [(port, bytes([byte]))]), byte

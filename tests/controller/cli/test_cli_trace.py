"""`p4reduce switch trace --job`: a job's frames in the terms of the protocol."""

from __future__ import annotations

from typing import Any

import click.testing
import msgspec
import pytest

from p4reduce_contracts.cli import main
from p4reduce_controller.cli import trace_view
from p4reduce_switch.program import PacketTrace
from rigs.pipeline import JOB, PipelineRig, rank_port


@pytest.fixture(scope="module")
def rig() -> PipelineRig:
    """A switch with a job of two ranks, where rank 0 has contributed to round 7 of slot 1."""
    made = PipelineRig("small", 2)
    made.program.trace_with(made.program.compiled.traced())
    made.send(0, made.contribution(1, 7, None, {0: bytes(made.geometry.block_bytes)}))
    return made


def told(rig: PipelineRig, rank: int, slot: int, number: int, **options: Any) -> list[str]:
    traces: list[PacketTrace] = []
    payload = rig.contribution(slot, number, None, {0: bytes(rig.geometry.block_bytes)}, **options)
    rig.program.process(rank_port(rank), rig.frame(rank, payload), traces.append)
    return list(trace_view.lines(msgspec.to_builtins(traces[0])))


def test_it_tells_why_a_contribution_was_dropped(rig: PipelineRig) -> None:
    stale = told(rig, 1, 1, 3)
    assert stale[0].endswith(
        f"port 2: CONTRIBUTE of job {JOB}, epoch 9, slot 1, round 3, columns 0b1, seen 0b0, level 0, "
        "next blocks none none none none"
    )
    assert stale[1:] == [
        "    admitted",
        "    slot: round 7 of epoch 9",
        "    dropped: STALE: the slot holds round 7, so it takes round 7 or 9, and the frame is of 3",
    ]
    assert told(rig, 0, 9, 7)[-1] == "    dropped: SLOT"
    assert told(rig, 0, 1, 7, epoch=8)[-1] == "    dropped: EPOCH"


def test_it_tells_which_children_a_round_waits_for_and_who_gets_the_result(rig: PipelineRig) -> None:
    first = told(rig, 0, 2, 7)
    assert "    children seen: 0b1 now" in first
    assert first[-1] == "    no answer: taken in, and other children are waited for"
    second = told(rig, 1, 2, 7)
    assert "    children seen: 0b11 now" in second
    results = f"RESULT of job {JOB}, epoch 9, slot 2, round 7, columns 0b1, seen 0b11, level 0"
    assert second[-2:] == [f"    to port {port}: {results}" for port in (1, 2)]
    assert not any(format(rig.children[0].secret, "x") in line for line in (*first, *second))


@pytest.mark.parametrize(("option", "said"), [("--slot=3", "a job"), ("--p4runtime=127.0.0.1:1", "start it")])
def test_errors_say_what_to_do(option: str, said: str) -> None:
    done = click.testing.CliRunner().invoke(main, ["switch", "trace", option])
    assert done.exit_code in (1, 2) and said in done.output

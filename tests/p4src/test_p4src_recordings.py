"""BMv2's recorded answers to the project's program: of today's cases, and as the truth table and the counters say."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from conformance import bmv2, recording
from conformance.case import Write
from conformance.corpus import OWN
from conformance.embedded import EmbeddedTarget
from conformance.replay import Target, replay
from rigs import wire
from rigs.recorded import table_rows
from rigs.recorded.cases import cases
from rigs.recorded.network import Network
from rigs.truth_table import SWITCHES, check_outputs

needs_bmv2 = pytest.mark.skipif(bmv2.SWITCH is None, reason="simple_switch_grpc is not on PATH")


def test_every_case_is_recorded_and_no_other() -> None:
    assert {name for name in recording.names() if name.startswith(OWN)} == set(cases())


@pytest.mark.parametrize("name", list(cases()))
def test_the_recording_is_of_this_corpus(name: str) -> None:
    assert recording.load(name).steps == cases()[name].steps, "the corpus has changed; run `make conformance`"


@pytest.mark.parametrize("switch", SWITCHES)
def test_bmv2_answers_as_the_truth_table_says(switch: str) -> None:
    answers = recording.load(table_rows.name(switch)).answers.steps
    for (_, row), outputs in zip(table_rows.walk(switch), answers, strict=True):
        if row is not None:
            check_outputs(wire.DEFAULT, row, switch, outputs)  # type: ignore[arg-type]


@pytest.mark.parametrize("geometry", ["small", "default"])
def test_random_traffic_reaches_every_reply_and_drop(geometry: str) -> None:
    counted: dict[str, set[str]] = {}
    for name in cases():
        if geometry in name:
            for counter, cells in recording.load(name).answers.counters.items():
                counted.setdefault(counter.removeprefix("MainIngress."), set()).update(cells)
    reasons = len(counted["drops"])
    assert {"contributions", "duplicates", "results", "pendings"} <= set(counted)
    expected = len(wire.DROP_REASONS) - 1  # RATE needs a meter with rates, which depends on the clock
    assert reasons == expected, f"drop reasons seen: {sorted(counted['drops'])}"


@pytest.mark.parametrize(
    "target_of",
    [EmbeddedTarget, pytest.param(bmv2.Bmv2Target, marks=[pytest.mark.bmv2, needs_bmv2])],
    ids=["embedded", "bmv2"],
)
def test_a_commit_gives_fresh_registers(target_of: Callable[[], AbstractContextManager[Target]]) -> None:
    """Committing the pipeline again gives fresh registers: what a controller that starts relies on."""
    network = Network("small", 2)
    admissions = [network.admission(rank) for rank in (0, 1)]
    entries = tuple(("insert", entry) for entry in [*network.switching(), *network.job(), *admissions])
    keys = (wire.KEY_NONE,) * network.geometry.columns
    contribution = network.contribution(0, 0, 7, keys, {0: bytes(network.geometry.block_bytes)})
    case = network.case("fresh_registers", [Write(entries), contribution, contribution])
    with target_of() as target:
        first = replay(case, target).steps
        assert first[1] == () and len(first[2]) == 1, "a contribution is taken in, its duplicate answered with PENDING"
        assert replay(case, target).steps == first, "the contribution of before the commit must be forgotten"

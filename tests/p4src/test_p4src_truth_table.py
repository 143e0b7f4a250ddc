"""truth_table.toml, row by row, on the v1model and the TNA program, as root and as leaf: registers before and after.

BMv2's recorded answers to the project's program: of today's cases, and as the truth table and the counters say.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

import pytest

from conformance import bmv2, recording
from conformance.case import Write
from conformance.corpus import OWN
from conformance.embedded import EmbeddedTarget
from conformance.replay import Target, replay
from rigs import wire
from rigs.pipeline import EPOCH, PARENT, PipelineRig, VersionState
from rigs.recorded import table_rows
from rigs.recorded.cases import cases
from rigs.recorded.network import Network
from rigs.tna_rig import TnaRig
from rigs.tofino_model import NEEDS_MODEL, ModelRig
from rigs.truth_table import (
    RANKS,
    SLOT,
    SWITCHES,
    Row,
    bits,
    check_outputs,
    preparation,
    rows_of,
    sent,
    with_version,
    words,
)

COUNTERS: Final = ("contributions", "duplicates", "results", "pendings", "parent_answers")
PROGRAMS: Final[dict[str, Callable[..., PipelineRig]]] = {
    "v1model-4x8": partial(PipelineRig, "tofino1-4x8"),
    "tofino1-4x8": partial(TnaRig, "tofino1-4x8"),
    "tofino2-4x16": partial(TnaRig, "tofino2-4x16"),
}
CASES: Final = [
    pytest.param(row, switch, id=f"{switch}-{row['name']}") for switch in SWITCHES for row in rows_of(switch)
]


def arrive(rig: PipelineRig, given: Row) -> list[tuple[int, bytes]]:
    return rig.process(*sent(rig.geometry, given))


def prepare(rig: PipelineRig, row: Row, version: int) -> None:
    """Bring the version to what the row has before, by frames."""
    dead, frames = preparation(row, version)
    if dead:
        rig.renew(EPOCH - 1)
        for frame in dead:
            arrive(rig, frame)
        rig.renew(EPOCH)
    for frame in frames:
        arrive(rig, frame)


def check_registers(rig: PipelineRig, found: VersionState, after: Row) -> None:
    if isinstance(rig, ModelRig):
        return  # its registers cannot be read
    blocks = words(rig.geometry, after["sums"])
    present = bits(blocks)
    assert (found.epoch, found.round) == (EPOCH, after["round"])
    assert found.seen == bits(after["seen"])
    assert found.held == present
    assert found.keys == (after["key"], *[wire.KEY_NONE] * (rig.geometry.columns - 1))
    for column, block in blocks.items():
        assert b"".join(word.to_bytes(4, "big") for word in found.sums[column]) == block
    data = b"".join(blocks[column] for column in sorted(blocks))
    assert found.check == wire.check_of(present, data, rig.geometry.block_words)


@pytest.mark.fault("a round far ahead: STALE; the round continues")
@pytest.mark.parametrize("program", [*PROGRAMS, pytest.param("tofino-model", marks=NEEDS_MODEL)])
@pytest.mark.parametrize(("row", "switch"), CASES)
@pytest.mark.parametrize("version", [0, 1])
def test_row(row: Row, switch: str, version: int, program: str, request: pytest.FixtureRequest) -> None:
    """With `version` 1 each round is one more, and the slot's other version is the one at work."""
    row = with_version(row, version)
    make = PROGRAMS.get(program) or partial(ModelRig, request.getfixturevalue("tofino_model"))
    rig = make(RANKS, parent=PARENT if switch == "leaf" else None)
    prepare(rig, row, version)
    before, other = rig.version_state(SLOT, version), rig.version_state(SLOT, 1 - version)
    counted = {name: rig.job_count(name) for name in COUNTERS}
    assert rig.drops() == {}
    outputs = arrive(rig, row["frame"])
    assert rig.version_state(SLOT, 1 - version) == other
    if "after" in row:
        check_registers(rig, rig.version_state(SLOT, version), row["after"])
    else:
        assert rig.version_state(SLOT, version) == before
    assert rig.drops() == ({row["drop"]: 1} if "drop" in row else {})
    counts = row.get("counts", [] if "drop" in row else ["contributions"])
    if isinstance(rig, TnaRig | ModelRig):
        counts = row.get("counts_tna", counts)
    assert {name: rig.job_count(name) - counted[name] for name in COUNTERS} == {
        name: int(name in counts) for name in COUNTERS
    }
    check_outputs(rig.geometry, row, switch, outputs)


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

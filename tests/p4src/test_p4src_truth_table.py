"""truth_table.toml, row by row, on the v1model and the TNA program, as root and as leaf: registers before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from p4reduce_contracts.wire.check import check_of
from p4reduce_contracts.wire.numbers import DROP_REASONS
from rigs import wire
from rigs.pipeline import EPOCH, PARENT, Host, PipelineRig, VersionState
from rigs.tna_rig import TnaRig
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

DROPS: Final = {name: number for number, name in DROP_REASONS.items()}
COUNTERS: Final = ("contributions", "duplicates", "results", "pendings", "parent_answers")
PROGRAMS: Final[dict[str, Callable[[Host | None], PipelineRig]]] = {
    "v1model-4x8": lambda parent: PipelineRig("tofino1-4x8", RANKS, parent=parent),
    "tofino1-4x8": lambda parent: TnaRig("tofino1-4x8", RANKS, parent=parent),
    "tofino2-4x16": lambda parent: TnaRig("tofino2-4x16", RANKS, parent=parent),
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
    blocks = words(rig.geometry, after["sums"])
    present = bits(blocks)
    assert (found.epoch, found.round) == (EPOCH, after["round"])
    assert found.seen == bits(after["seen"])
    assert found.held == present
    assert found.keys == (after["key"], *[wire.KEY_NONE] * (rig.geometry.columns - 1))
    for column, block in blocks.items():
        assert b"".join(word.to_bytes(4, "big") for word in found.sums[column]) == block
    data = b"".join(blocks[column] for column in sorted(blocks))
    assert found.check == check_of(present, data, rig.geometry.block_words)


@pytest.mark.fault("a round far ahead: STALE; the round continues")
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(("row", "switch"), CASES)
@pytest.mark.parametrize("version", [0, 1])
def test_row(row: Row, switch: str, version: int, program: str) -> None:
    """With `version` 1 each round is one more, and the slot's other version is the one at work."""
    row = with_version(row, version)
    rig = PROGRAMS[program](PARENT if switch == "leaf" else None)
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
    assert rig.drops() == ({DROPS[row["drop"]]: 1} if "drop" in row else {})
    counts = row.get("counts", [] if "drop" in row else ["contributions"])
    if isinstance(rig, TnaRig):
        counts = row.get("counts_tna", counts)
    assert {name: rig.job_count(name) - counted[name] for name in COUNTERS} == {
        name: int(name in counts) for name in COUNTERS
    }
    check_outputs(rig.geometry, row, switch, outputs)

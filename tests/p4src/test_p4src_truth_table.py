"""truth_table.toml, row by row, on the v1model and on the TNA program: registers before, a frame, registers after."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from p4reduce_contracts import wire
from p4reduce_contracts.wire.check import check_of
from rigs.pipeline import EPOCH, PipelineRig, VersionState, payload_of, rank_port
from rigs.secret import rank_secret
from rigs.tna_rig import TnaRig

ROWS = tomllib.loads(Path(__file__).with_name("truth_table.toml").read_text())["row"]
RANKS = 3
SLOT = 1
DROP_STALE = 8
PROGRAMS = [
    pytest.param(PipelineRig, "tofino1-4x8", id="v1model-4x8"),
    pytest.param(TnaRig, "tofino1-4x8", id="tofino1-4x8"),
    pytest.param(TnaRig, "tofino2-4x16", id="tofino2-4x16"),
]


def frame(rig: PipelineRig, round_: int, key: int, blocks: dict[str, int], epoch: int = EPOCH) -> bytes:
    """A contribution whose blocks' words are all alike. Columns but the first say that they have no block left."""
    keys = (key, *[wire.KEY_NONE] * (rig.geometry.columns - 1))
    words = {int(column): word.to_bytes(4, "big") * rig.geometry.block_words for column, word in blocks.items()}
    return rig.contribution(SLOT, round_, keys, words, epoch)


def prepare(rig: PipelineRig, before: str | dict[str, Any], version: int) -> None:
    """Bring the version to that state, by frames."""
    if before == "fresh":
        return
    if isinstance(before, str):
        rig.renew(EPOCH - 1)
        for rank in range(RANKS):
            rig.send(rank, frame(rig, 6 + version, 1, {"0": 77, "1": 78}, EPOCH - 1))
        rig.renew(EPOCH)
        return
    for rank in before.get("earlier", {}).get("seen", ()):
        rig.send(rank, frame(rig, before["earlier"]["round"], 1, {"3": 99}))
    first, *others = before["seen"]
    rig.send(first, frame(rig, before["round"], before["key"], before["sums"]))
    for rank in others:
        rig.send(rank, frame(rig, before["round"], wire.KEY_NONE, {}))


def expected_blocks(rig: PipelineRig, sums: dict[str, int]) -> dict[int, bytes]:
    return {int(column): word.to_bytes(4, "big") * rig.geometry.block_words for column, word in sums.items()}


def check_registers(rig: PipelineRig, found: VersionState, after: dict[str, Any]) -> None:
    blocks = expected_blocks(rig, after["sums"])
    present = sum(1 << column for column in blocks)
    assert (found.epoch, found.round) == (EPOCH, after["round"])
    assert found.seen == sum(1 << rank for rank in after["seen"])
    assert found.held == present
    assert found.keys == (after["key"], *[wire.KEY_NONE] * (rig.geometry.columns - 1))
    for column, words in blocks.items():
        assert b"".join(word.to_bytes(4, "big") for word in found.sums[column]) == words
    data = b"".join(blocks[column] for column in sorted(blocks))
    assert found.check == check_of(present, data, rig.geometry.block_words)


def check_reply(rig: PipelineRig, reply: bytes, rank: int, kind: str, after: dict[str, Any]) -> None:
    found = wire.unpack(rig.geometry, payload_of(reply))
    blocks = expected_blocks(rig, after["sums"]) if kind == "RESULT" else {}
    present = sum(1 << column for column in blocks)
    data = b"".join(blocks[column] for column in sorted(blocks))
    assert found.type == {"RESULT": wire.RESULT, "PENDING": wire.PENDING}[kind]
    assert (found.epoch, found.slot, found.round) == (EPOCH, SLOT, after["round"])
    assert (found.present, found.blocks) == (present, data)
    assert found.check == check_of(present, data, rig.geometry.block_words)
    assert found.keys[0] == after["key"]
    assert found.seen == sum(1 << rank for rank in after["seen"])
    assert found.secret == rank_secret(rank)


@pytest.mark.parametrize(("rig_of", "geometry"), PROGRAMS)
@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
@pytest.mark.parametrize("version", [0, 1])
def test_row(row: dict[str, Any], version: int, rig_of: type[PipelineRig], geometry: str) -> None:
    """Rounds of a row are even; with `version` 1 each is one more, and the slot's other version is the one at work."""
    row = with_version(row, version)
    rig = rig_of(geometry, RANKS)
    prepare(rig, row["before"], version)
    before, other = rig.version_state(SLOT, version), rig.version_state(SLOT, 1 - version)
    assert rig.drops() == {}
    sent = row["frame"]
    outputs = rig.send(sent["rank"], frame(rig, sent["round"], sent["key"], sent["blocks"]))
    assert rig.version_state(SLOT, 1 - version) == other
    if "drop" in row:
        assert outputs == []
        assert rig.drops() == {DROP_STALE: 1}
        assert rig.version_state(SLOT, version) == before
        return
    assert rig.drops() == {}
    check_registers(rig, rig.version_state(SLOT, version), row["after"])
    if row["out"] == "nothing":
        assert outputs == []
        return
    kind, _, to = row["out"].partition(" to ")
    ranks = range(RANKS) if to == "all" else [sent["rank"]]
    assert [port for port, _ in outputs] == [rank_port(rank) for rank in ranks]
    for rank, (_, reply) in zip(ranks, outputs, strict=True):
        check_reply(rig, reply, rank, kind, row["after"])


def with_version(row: Any, version: int) -> Any:
    """The row with every round moved to that version."""
    if isinstance(row, list):
        return [with_version(one, version) for one in row]
    if isinstance(row, dict):
        return {k: v + version if k == "round" else with_version(v, version) for k, v in row.items()}
    return row

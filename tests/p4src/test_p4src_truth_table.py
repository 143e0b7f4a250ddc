"""truth_table.toml, row by row, on the v1model and the TNA program, as root and as leaf: registers before and after."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pytest

from p4reduce_contracts import wire
from p4reduce_contracts.wire.check import check_of
from p4reduce_contracts.wire.numbers import DROP_REASONS, TYPE_NAMES
from rigs.pipeline import (
    EPOCH,
    JOB,
    UPLINK_PORT,
    Host,
    PipelineRig,
    VersionState,
    from_host,
    payload_of,
    rank_host,
    rank_port,
    switch_host,
)
from rigs.secret import rank_secret
from rigs.tna_rig import TnaRig

ROWS: Final = tomllib.loads(Path(__file__).with_name("truth_table.toml").read_text())["row"]
RANKS, SLOT = 3, 1
PARENT: Final = switch_host(9, 0x1122334455667788)
TYPES: Final = {name: number for number, name in TYPE_NAMES.items()}
DROPS: Final = {name: number for number, name in DROP_REASONS.items()}
COUNTERS: Final = ("contributions", "duplicates", "results", "pendings", "parent_answers")
PROGRAMS: Final[dict[str, Callable[[Host | None], PipelineRig]]] = {
    "v1model-4x8": lambda parent: PipelineRig("tofino1-4x8", RANKS, parent=parent),
    "tofino1-4x8": lambda parent: TnaRig("tofino1-4x8", RANKS, parent=parent),
    "tofino2-4x16": lambda parent: TnaRig("tofino2-4x16", RANKS, parent=parent),
}
CASES: Final = [
    pytest.param(row, switch, id=f"{switch}-{row['name']}")
    for row in ROWS
    for switch in ("root", "leaf")
    if row.get("switch", switch) == switch
]
"""A row and the kind of switch; most rows hold for both."""


def bits(children: Iterable[int]) -> int:
    return sum(1 << child for child in children)


def words(rig: PipelineRig, blocks: dict[str, int]) -> dict[int, bytes]:
    """Each column's block, whose words are all alike."""
    return {int(column): word.to_bytes(4, "big") * rig.geometry.block_words for column, word in blocks.items()}


def read(rig: PipelineRig, given: dict[str, Any]) -> wire.Frame:
    """A frame as a row describes it. Columns but the first say that they have no block left."""
    blocks = words(rig, given.get("blocks", {}))
    present, data = bits(blocks), b"".join(blocks[column] for column in sorted(blocks))
    sender = given.get("secret_of", given["from"])
    return wire.Frame(
        type=TYPES[given.get("type", "CONTRIBUTE")],
        job=given.get("job", JOB),
        present=present,
        epoch=given.get("epoch", EPOCH),
        slot=given.get("slot", SLOT),
        round=given["round"],
        seen=bits(given.get("seen", ())),
        secret=PARENT.secret if sender == "parent" else rank_secret(sender),
        check=check_of(present, data, rig.geometry.block_words),
        keys=(given["key"], *[wire.KEY_NONE] * (rig.geometry.columns - 1)),
        blocks=data,
        level=given.get("level", 0),
    )


def arrive(rig: PipelineRig, given: dict[str, Any]) -> list[tuple[int, bytes]]:
    """Send a frame as a row describes it; return what comes out, with its ports."""
    frame = read(rig, given)
    payload = bytearray(wire.pack(rig.geometry, frame))
    if "flip" in given:
        payload[given["flip"]] ^= 1
    sender = given["from"]
    host = PARENT if sender == "parent" else rank_host(sender, frame.secret)
    at = given.get("at", sender)
    return rig.process(UPLINK_PORT if at == "parent" else rank_port(at), from_host(host, bytes(payload)))


def prepare(rig: PipelineRig, before: str | dict[str, Any], version: int) -> None:
    """Bring the version to that state, by frames."""
    if before == "fresh":
        return
    if isinstance(before, str):
        rig.renew(EPOCH - 1)
        blocks = {"0": 77, "1": 78}
        for rank in range(RANKS):
            arrive(rig, {"from": rank, "round": 6 + version, "key": 1, "blocks": blocks, "epoch": EPOCH - 1})
        rig.renew(EPOCH)
        return
    for rank in before.get("earlier", {}).get("seen", ()):
        arrive(rig, {"from": rank, "round": before["earlier"]["round"], "key": 1, "blocks": {"3": 99}})
    first, *others = before["seen"]
    arrive(rig, {"from": first, "round": before["round"], "key": before["key"], "blocks": before["sums"]})
    for rank in others:
        arrive(rig, {"from": rank, "round": before["round"], "key": wire.KEY_NONE})


def check_registers(rig: PipelineRig, found: VersionState, after: dict[str, Any]) -> None:
    blocks = words(rig, after["sums"])
    present = bits(blocks)
    assert (found.epoch, found.round) == (EPOCH, after["round"])
    assert found.seen == bits(after["seen"])
    assert found.held == present
    assert found.keys == (after["key"], *[wire.KEY_NONE] * (rig.geometry.columns - 1))
    for column, block in blocks.items():
        assert b"".join(word.to_bytes(4, "big") for word in found.sums[column]) == block
    data = b"".join(blocks[column] for column in sorted(blocks))
    assert found.check == check_of(present, data, rig.geometry.block_words)


def expected(rig: PipelineRig, row: dict[str, Any], kind: str) -> wire.Frame:
    """What goes out: what the parent sent, one level down, or what the registers hold."""
    sent = row["frame"]
    if sent["from"] == "parent":
        assert kind == sent["type"]
        return read(rig, {**sent, "level": sent.get("level", 0) + 1})
    after = row["after"]
    blocks = {} if kind == "PENDING" else after["sums"]
    seen = [] if kind == "CONTRIBUTE" else after["seen"]
    given = {"from": 0, "type": kind, "round": after["round"], "key": after["key"], "seen": seen, "blocks": blocks}
    return read(rig, given)


def check_out(rig: PipelineRig, frame: bytes, to: Host, wanted: wire.Frame) -> None:
    own = switch_host(0, 0)
    assert frame[0:12] == to.mac.to_bytes(6, "big") + own.mac.to_bytes(6, "big")
    assert frame[26:34] == own.ip.to_bytes(4, "big") + to.ip.to_bytes(4, "big")
    assert frame[34:38] == own.udp_port.to_bytes(2, "big") + to.udp_port.to_bytes(2, "big")
    assert wire.unpack(rig.geometry, payload_of(frame)) == wanted._replace(secret=to.secret)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(("row", "switch"), CASES)
@pytest.mark.parametrize("version", [0, 1])
def test_row(row: dict[str, Any], switch: str, version: int, program: str) -> None:
    """Rounds of a row are even; with `version` 1 each is one more, and the slot's other version is the one at work."""
    row = with_version(row, version)
    rig = PROGRAMS[program](PARENT if switch == "leaf" else None)
    prepare(rig, row["before"], version)
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
    out = row.get("out", "nothing")
    kind, _, to = (out if isinstance(out, str) else out[switch]).partition(" to ")
    ranks = {"all": range(RANKS), "sender": [row["frame"]["from"]]}.get(to, [])
    hosts = [(rank_port(rank), rank_host(rank, rank_secret(rank))) for rank in ranks]
    if to == "parent":
        hosts = [(UPLINK_PORT, PARENT)]
    assert [port for port, _ in outputs] == [port for port, _ in hosts]
    for (_, host), (_, frame) in zip(hosts, outputs, strict=True):
        check_out(rig, frame, host, expected(rig, row, kind))


def with_version(row: Any, version: int) -> Any:
    """The row with every round moved to that version."""
    if isinstance(row, list):
        return [with_version(one, version) for one in row]
    if isinstance(row, dict):
        return {k: v + version if k == "round" else with_version(v, version) for k, v in row.items()}
    return row

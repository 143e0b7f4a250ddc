"""tests/p4src/truth_table.toml: its frames, and what has to come out."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from p4reduce_contracts.wire.geometry import Geometry
from p4reduce_contracts.wire.numbers import TYPE_NAMES
from rigs import wire
from rigs.pipeline import (
    EPOCH,
    JOB,
    PARENT,
    UPLINK_PORT,
    Host,
    frame_with,
    from_host,
    payload_of,
    rank_host,
    rank_port,
    switch_host,
)
from rigs.secret import rank_secret

Row = dict[str, Any]
ROWS: Final[list[Row]] = tomllib.loads((Path(__file__).parents[1] / "p4src/truth_table.toml").read_text())["row"]
SWITCHES: Final = ("root", "leaf")
RANKS, SLOT = 3, 1
TYPES: Final = {name: number for number, name in TYPE_NAMES.items()}


def rows_of(switch: str) -> list[Row]:
    return [row for row in ROWS if row.get("switch", switch) == switch]


def with_version(row: Any, version: int) -> Any:
    """Return the row with every round moved to that version; rounds of the file are even."""
    if isinstance(row, list):
        return [with_version(one, version) for one in row]
    if isinstance(row, dict):
        return {k: v + version if k == "round" else with_version(v, version) for k, v in row.items()}
    return row


def bits(children: Iterable[int]) -> int:
    """Return their bits in `seen`, or those of columns in `present`."""
    return sum(1 << child for child in children)


def words(geometry: Geometry, blocks: dict[str, int]) -> dict[int, bytes]:
    """Return each column's block, whose words are all alike."""
    return {int(column): word.to_bytes(4, "big") * geometry.block_words for column, word in blocks.items()}


def frame_of(geometry: Geometry, given: Row) -> wire.Frame:
    """Return a frame as a row describes it. Columns but the first say that they have no block left."""
    sender = given.get("secret_of", given["from"])
    return frame_with(
        geometry,
        words(geometry, given.get("blocks", {})),
        TYPES[given.get("type", "CONTRIBUTE")],
        (given["key"], *[wire.KEY_NONE] * (geometry.columns - 1)),
        job=given.get("job", JOB),
        epoch=given.get("epoch", EPOCH),
        slot=given.get("slot", SLOT),
        round=given["round"],
        seen=bits(given.get("seen", ())),
        secret=PARENT.secret if sender == "parent" else rank_secret(sender),
        level=given.get("level", 0),
    )


def sent(geometry: Geometry, given: Row) -> tuple[int, bytes]:
    """Return the port and the bytes of a frame as a row describes it."""
    frame = frame_of(geometry, given)
    payload = bytearray(wire.pack(geometry, frame))
    if "flip" in given:
        payload[given["flip"]] ^= 1
    sender = given["from"]
    host = PARENT if sender == "parent" else rank_host(sender, frame.secret)
    at = given.get("at", sender)
    return (UPLINK_PORT if at == "parent" else rank_port(at)), from_host(host, bytes(payload))


def preparation(row: Row, version: int) -> tuple[list[Row], list[Row]]:
    """Return the frames that bring a fresh version to what the row has before: of the last epoch, and of this one."""
    before = row["before"]
    if before == "fresh":
        return [], []
    if before == "dead":
        dead = {"round": 6 + version, "key": 1, "blocks": {"0": 77, "1": 78}, "epoch": EPOCH - 1}
        return [{"from": rank, **dead} for rank in range(RANKS)], []
    earlier = before.get("earlier", {"seen": []})
    frames = [{"from": rank, "round": earlier["round"], "key": 1, "blocks": {"3": 99}} for rank in earlier["seen"]]
    first, *others = before["seen"]
    frames.append({"from": first, "round": before["round"], "key": before["key"], "blocks": before["sums"]})
    return [], frames + [{"from": rank, "round": before["round"], "key": wire.KEY_NONE} for rank in others]


def probes(row: Row) -> Iterator[Row]:
    """Yield rows that follow the row: what the last one brings has all that the row left in the registers."""
    state = row.get("after", row["before"])
    if isinstance(state, str):
        return
    complete = {**state, "seen": list(range(RANKS))}
    missing = [rank for rank in range(RANKS) if rank not in state["seen"]]
    for number, rank in enumerate(missing or [0], 1):
        frame = {"from": rank, "round": state["round"], "key": wire.KEY_NONE}
        if number < len(missing):
            yield {"frame": frame}
        else:
            out = {"root": "RESULT to all" if missing else "RESULT to sender", "leaf": "CONTRIBUTE to parent"}
            yield {"frame": frame, "after": complete, "out": out}


def check_outputs(geometry: Geometry, row: Row, switch: str, outputs: Iterable[tuple[int, bytes]]) -> None:
    """Compare (port, frame) of everything that came out, in the order of ports, with the row."""
    out = row.get("out", "nothing")
    kind, _, to = (out if isinstance(out, str) else out[switch]).partition(" to ")
    ranks = {"all": range(RANKS), "sender": [row["frame"]["from"]]}.get(to, [])
    hosts = [(rank_port(rank), rank_host(rank, rank_secret(rank))) for rank in ranks]
    if to == "parent":
        hosts = [(UPLINK_PORT, PARENT)]
    found = list(outputs)
    assert [port for port, _ in found] == [port for port, _ in hosts]
    for (_, host), (_, frame) in zip(hosts, found, strict=True):
        _check_addresses(frame, host)
        expected = _expected(geometry, row, kind)._replace(secret=host.secret)
        assert wire.unpack(geometry, payload_of(frame)) == expected


def _expected(geometry: Geometry, row: Row, kind: str) -> wire.Frame:
    """Return what goes out: what the parent sent, one level down, or what the registers hold."""
    given = row["frame"]
    if given["from"] == "parent":
        assert kind == given["type"]
        return frame_of(geometry, {**given, "level": given.get("level", 0) + 1})
    after = row["after"]
    blocks = {} if kind == "PENDING" else after["sums"]
    seen = [] if kind == "CONTRIBUTE" else after["seen"]
    found = {"from": 0, "type": kind, "round": after["round"], "key": after["key"], "seen": seen, "blocks": blocks}
    return frame_of(geometry, found)


def _check_addresses(frame: bytes, to: Host) -> None:
    own = switch_host(0, 0)
    assert frame[0:12] == to.mac.to_bytes(6, "big") + own.mac.to_bytes(6, "big")
    assert frame[26:34] == own.ip.to_bytes(4, "big") + to.ip.to_bytes(4, "big")
    assert frame[34:38] == own.udp_port.to_bytes(2, "big") + to.udp_port.to_bytes(2, "big")

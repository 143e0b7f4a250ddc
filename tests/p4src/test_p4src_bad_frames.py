"""Bad aggregation frames: each is dropped, counted under its reason, and leaves all state as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rigs import wire
from rigs.pipeline import SLOT_COUNT, SWITCH_IP, SWITCH_MAC, PipelineRig, ipv4_header, rank_ip, rank_port, udp_frame
from rigs.secret import rank_secret
from rigs.tofino_model import TARGETS


def patched(frame: bytes, offset: int, value: bytes) -> bytes:
    return frame[:offset] + value + frame[offset + len(value) :]


def with_ip(frame: bytes, **fields: int) -> bytes:
    return frame[:14] + ipv4_header(rank_ip(0), SWITCH_IP, len(frame) - 34, **fields) + frame[34:]


def resealed(frame: bytes, offset: int, value: bytes) -> bytes:
    """Patched by someone who knows how to make the header checksum right again."""
    found = patched(frame, offset, value)
    checksum = wire.header_checksum(wire.SMALL, found[BASE:])
    return patched(found, CHECKSUM_AT, checksum.to_bytes(2, "big"))


def from_switch(frame: bytes, udp_port: int, **fields: int) -> bytes:
    header = ipv4_header(SWITCH_IP, SWITCH_IP, len(frame) - 34, **fields)
    return frame[:14] + header + udp_port.to_bytes(2, "big") + frame[36:]


RigOf = Callable[..., PipelineRig]
BASE = 42  # where the aggregation header starts
SECRET = BASE + wire.BASE_BYTES
CHECKSUM_AT = SECRET + 12
KEYS = SECRET + wire.GUARD_BYTES
ROWS: list[tuple[str, str, Callable[[bytes], bytes]]] = [
    *((f"cut by {n} of its bytes", "TRUNCATED", lambda f, n=n: f[:-n]) for n in range(1, 8)),  # type: ignore[misc]
    ("cut inside the keys", "TRUNCATED", lambda f: f[: BASE + 20]),
    ("cut inside the base header", "TRUNCATED", lambda f: f[: BASE + 3]),
    ("no payload", "TRUNCATED", lambda f: f[:BASE]),
    ("cut inside the UDP header", "TRUNCATED", lambda f: f[: BASE - 4]),
    ("a byte behind the frame", "LENGTH", lambda f: f + b"\0"),
    ("a whole block behind the frame", "LENGTH", lambda f: f + bytes(32)),
    ("UDP length too long", "LENGTH", lambda f: patched(f, 38, (len(f) - 34 + 1).to_bytes(2, "big"))),
    ("UDP length too short", "LENGTH", lambda f: patched(f, 38, (8).to_bytes(2, "big"))),
    (
        "IPv4 length and frame disagree",
        "LENGTH",
        lambda f: f[:14] + ipv4_header(rank_ip(0), SWITCH_IP, len(f)) + f[34:],
    ),
    ("present names a column the program lacks", "LENGTH", lambda f: patched(f, BASE + 2, b"\x11")),
    ("wire version 0", "VERSION", lambda f: patched(f, BASE, b"\x01")),
    ("wire version 1", "VERSION", lambda f: patched(f, BASE, b"\x11")),
    ("a RESULT from a worker", "TYPE", lambda f: resealed(f, BASE, b"\x22")),
    ("a PENDING from a worker", "TYPE", lambda f: resealed(f, BASE, b"\x23")),
    ("an unknown type", "TYPE", lambda f: patched(f, BASE, b"\x2f")),
    ("unknown job", "NOT_ADMITTED", lambda f: resealed(f, BASE + 1, b"\x08")),
    ("another rank's secret", "NOT_ADMITTED", lambda f: patched(f, SECRET, rank_secret(1).to_bytes(8, "big"))),
    ("a secret with one bit flipped", "NOT_ADMITTED", lambda f: patched(f, SECRET + 7, bytes((f[SECRET + 7] ^ 1,)))),
    ("no secret", "NOT_ADMITTED", lambda f: patched(f, SECRET, bytes(8))),
    ("another UDP port", "NOT_ADMITTED", lambda f: patched(f, 34, b"\x9c\x50")),
    ("wrong epoch", "EPOCH", lambda f: resealed(f, BASE + 4, b"\x00\x0a")),
    ("epoch 0", "EPOCH", lambda f: resealed(f, BASE + 4, b"\x00\x00")),
    ("slot behind the lease", "SLOT", lambda f: resealed(f, BASE + 6, SLOT_COUNT.to_bytes(2, "big"))),
    ("slot 65535", "SLOT", lambda f: resealed(f, BASE + 6, b"\xff\xff")),
    ("IPv4 checksum", "CHECKSUM", lambda f: patched(f, 24, bytes((f[24] ^ 1,)))),
    ("first fragment", "FRAGMENT", lambda f: with_ip(f, fragment=0x2000)),
    ("later fragment", "FRAGMENT", lambda f: with_ip(f, fragment=0x0010)),
    ("level is not a worker's to set", "RESERVED", lambda f: patched(f, BASE + 3, b"\x01")),
    ("seen is not a worker's to set", "RESERVED", lambda f: resealed(f, BASE + 12, b"\x00\x00\x00\x03")),
    ("the guard's reserved field", "RESERVED", lambda f: patched(f, CHECKSUM_AT + 2, b"\x00\x01")),
    ("a header bit flipped", "HEADER_CHECKSUM", lambda f: patched(f, BASE + 11, bytes((f[BASE + 11] ^ 2,)))),
    (
        "a bit of the check word flipped",
        "HEADER_CHECKSUM",
        lambda f: patched(f, SECRET + 8, bytes((f[SECRET + 8] ^ 1,))),
    ),
    ("a key's bit flipped", "HEADER_CHECKSUM", lambda f: patched(f, KEYS, bytes((f[KEYS] ^ 0x80,)))),
    ("the last key's bit flipped", "HEADER_CHECKSUM", lambda f: patched(f, KEYS + 15, bytes((f[KEYS + 15] ^ 1,)))),
    ("the checksum's bit flipped", "HEADER_CHECKSUM", lambda f: patched(f, CHECKSUM_AT, bytes((f[CHECKSUM_AT] ^ 4,)))),
    ("no checksum", "HEADER_CHECKSUM", lambda f: patched(f, CHECKSUM_AT, b"\0\0")),
    ("a round the ranks cannot be in yet", "STALE", lambda f: resealed(f, BASE + 8, (14).to_bytes(4, "big"))),
    ("a round two before", "STALE", lambda f: resealed(f, BASE + 8, (8).to_bytes(4, "big"))),
    ("the switch's MAC address", "SPOOFED", lambda f: patched(f, 6, SWITCH_MAC.to_bytes(6, "big"))),
    ("the switch's IP address and UDP port", "SPOOFED", lambda f: from_switch(f, wire.AGGREGATION_PORT)),
    ("the switch's IP address, no UDP", "SPOOFED", lambda f: from_switch(f, 40000, protocol=1)),
    ("the switch's IP address, another UDP port", "NOT_ADMITTED", lambda f: from_switch(f, 40000)),
    ("IPv4 options", "NOT_SERVED", lambda f: patched(f, 14, b"\x46")),
    ("TCP to the switch", "NOT_SERVED", lambda f: with_ip(f, protocol=6)),
    ("UDP to another port of the switch", "NOT_SERVED", lambda f: patched(f, 36, b"\x00\x35")),
]


UNSEEN_BY_TOFINO = {"a byte behind the frame", "a whole block behind the frame"}
"""Frames that Tofino takes: its ingress has no count of a frame's bytes and does not look behind the blocks."""
LOCKS_OUT_ON_TOFINO = {"a round the ranks cannot be in yet"}
"""Frames after which the rank that broke lock step takes no further part in this version; the slot is as it was."""


@pytest.mark.fault(
    "a bad frame of every kind (cut, lengths, versions, types, job, secret, epoch, slot, checksums): dropped, "
    "with its reason"
)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "reason", "spoil"), ROWS, ids=[row[0] for row in ROWS])
def test_bad_frame(rig_of: RigOf, target: str, name: str, reason: str, spoil: Callable[[bytes], bytes]) -> None:
    if target != "v1model" and name in UNSEEN_BY_TOFINO:
        pytest.skip("Tofino cannot see it")
    rig = rig_of(2)
    words = [(column + 1).to_bytes(4, "big") * rig.geometry.block_words for column in range(4)]
    good = {0: words[0], 3: words[3]}
    rig.send(1, rig.contribution(round_=10, blocks={1: words[1]}))
    bad = spoil(rig.frame(0, rig.contribution(round_=10, blocks={0: words[2], 2: words[2]})))
    if target == "tofino-model" and len(bad) <= BASE:
        reason = "VERSION"  # of the zeros behind so short a frame
    before = rig.version_state(0, 0)
    assert rig.process(rank_port(0), bad) == []
    assert rig.drops() == {reason: 1}
    assert rig.version_state(0, 0) == before
    if target != "v1model" and name in LOCKS_OUT_ON_TOFINO:
        return
    # State untouched: the round goes on as if the frame had never come.
    results = rig.send(0, rig.contribution(round_=10, blocks=good))
    assert len(results) == 2
    assert wire.unpack(rig.geometry, results[0][1][42:]).blocks == words[0] + words[1] + words[3]
    assert rig.drops() == {reason: 1}


def test_a_lease_beyond_the_switch_s_slots_is_limited_to_them() -> None:
    """Even if a controller leased slots that do not exist."""
    rig = PipelineRig("small", 1)
    admit = rig.program.tables["MainIngress.admission.admit"]
    [entry] = admit.entries()
    admit.modify(entry.match, entry.priority, (entry.call[0], (1, 1, 15, 4, 9, 263, 0)))
    assert len(rig.send(0, rig.contribution(slot=0))) == 1
    assert rig.send(0, rig.contribution(slot=1)) == []
    assert rig.drops() == {"SLOT": 1}


@pytest.mark.fault("a right frame from another port or address: NOT_ADMITTED")
@pytest.mark.parametrize("target", TARGETS)
def test_the_right_frame_from_the_wrong_port_or_address(rig_of: RigOf) -> None:
    rig = rig_of(2)
    frame = rig.frame(0, rig.contribution())
    assert rig.process(rank_port(1), frame) == []
    spoofed = frame[:14] + ipv4_header(rank_ip(1), SWITCH_IP, len(frame) - 34) + frame[34:]
    assert rig.process(rank_port(0), spoofed) == []
    assert rig.drops() == {"NOT_ADMITTED": 2}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("reason", "spoil"),
    [
        ("TRUNCATED", lambda p: p[:-1]),
        ("LENGTH", lambda p: p + b"\0"),
        ("RESERVED", lambda p: patched(p, 4, b"\x00\x01")),
        ("RESERVED", lambda p: patched(p, 8, b"\x01")),
        ("VERSION", lambda p: patched(p, 0, b"\x14")),
    ],
)
def test_bad_hello(rig_of: RigOf, target: str, reason: str, spoil: Callable[[bytes], bytes]) -> None:
    rig = rig_of(1)
    payload = spoil(wire.pack_hello(7, 12345))
    if target != "v1model" and len(payload) > len(wire.pack_hello(7, 12345)):
        pytest.skip("Tofino cannot see it")
    assert rig.process(rank_port(0), udp_frame(0, payload)) == []
    assert rig.drops() == {reason: 1}

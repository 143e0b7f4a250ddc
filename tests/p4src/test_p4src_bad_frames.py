"""Bad aggregation frames: each is dropped, counted under its reason, and leaves all state as it was."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from rigs import wire
from rigs.pipeline import SWITCH_IP, PipelineRig, rank_ip, rank_port, udp_frame
from rigs.recorded.network import BASE, FAULTS, GUARD, KEYS, Mutation, fix_checksum, flip_in, overwrite, reseal
from rigs.secret import rank_secret
from rigs.tofino_model import TARGETS


def cut_at(end: int) -> Mutation:
    return lambda _, frame: frame[:end]


def followed_by(data: bytes) -> Mutation:
    return lambda _, frame: frame + data


RigOf = Callable[..., PipelineRig]
REASONS = {
    "LENGTH": ["udp length", "ip length"],
    "VERSION": ["wire version", "wire version 0"],
    "TYPE": ["RESULT", "PENDING", "type 15"],
    "NOT_ADMITTED": ["job", "secret", "udp source", "switch's IP address"],
    "EPOCH": ["epoch", "epoch 0"],
    "SLOT": ["slot after the last", "slot"],
    "CHECKSUM": ["ip checksum"],
    "FRAGMENT": ["more fragments", "later fragment"],
    "RESERVED": ["level", "seen", "guard's reserved field"],
    "HEADER_CHECKSUM": ["check word", "key", "header checksum"],
    "SPOOFED": ["switch's MAC address", "switch's IP address and UDP port"],
    "NOT_SERVED": ["ip options", "tcp", "udp destination"],
}
"""Reason -> faults of `rigs/recorded/network.py`."""
ROWS: list[tuple[str, str, Mutation]] = [
    *((name, reason, FAULTS[name]) for reason, names in REASONS.items() for name in names),
    *((f"cut by {n} of its bytes", "TRUNCATED", cut_at(-n)) for n in range(1, 8)),
    ("cut inside the keys", "TRUNCATED", cut_at(BASE + 20)),
    ("cut inside the base header", "TRUNCATED", cut_at(BASE + 3)),
    ("no payload", "TRUNCATED", cut_at(BASE)),
    ("cut inside the UDP header", "TRUNCATED", cut_at(BASE - 4)),
    ("a byte behind the frame", "LENGTH", followed_by(b"\0")),
    ("a whole block behind the frame", "LENGTH", followed_by(bytes(32))),
    ("UDP length too long", "LENGTH", lambda _, f: f[:38] + (len(f) - 34 + 1).to_bytes(2, "big") + f[40:]),
    ("present names a column the program lacks", "LENGTH", overwrite(BASE + 2, 0x11)),
    ("another rank's secret", "NOT_ADMITTED", overwrite(GUARD, *rank_secret(1).to_bytes(8, "big"))),
    ("no secret", "NOT_ADMITTED", overwrite(GUARD, *bytes(8))),
    ("a bit of the round flipped", "HEADER_CHECKSUM", flip_in(BASE + 11, BASE + 12)),
    ("a bit of the last key flipped", "HEADER_CHECKSUM", flip_in(KEYS + 15, KEYS + 16)),
    ("no checksum", "HEADER_CHECKSUM", overwrite(GUARD + 12, 0, 0)),
    ("a round the ranks cannot be in yet", "STALE", reseal(BASE + 8, 0, 0, 0, 14)),
    ("a round two before", "STALE", reseal(BASE + 8, 0, 0, 0, 8)),
    (
        "the switch's IP address, no UDP",
        "SPOOFED",
        lambda _, f: fix_checksum(f[:23] + b"\1" + f[24:26] + SWITCH_IP.to_bytes(4, "big") + f[30:]),
    ),
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
def test_bad_frame(rig_of: RigOf, target: str, name: str, reason: str, spoil: Mutation) -> None:
    if target != "v1model" and name in UNSEEN_BY_TOFINO:
        pytest.skip("Tofino cannot see it")
    rig = rig_of(2)
    words = [(column + 1).to_bytes(4, "big") * rig.geometry.block_words for column in range(4)]
    good = {0: words[0], 3: words[3]}
    rig.send(1, rig.contribution(round_=10, blocks={1: words[1]}))
    bad = spoil(random.Random(1), rig.frame(0, rig.contribution(round_=10, blocks={0: words[2], 2: words[2]})))
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
    spoofed = overwrite(26, *rank_ip(1).to_bytes(4, "big"))(random.Random(1), frame)
    assert rig.process(rank_port(0), spoofed) == []
    assert rig.drops() == {"NOT_ADMITTED": 2}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("reason", "spoil"),
    [
        ("TRUNCATED", cut_at(-1)),
        ("LENGTH", followed_by(b"\0")),
        ("RESERVED", overwrite(4, 0, 1)),
        ("RESERVED", overwrite(8, 1)),
        ("VERSION", overwrite(0, 0x14)),
    ],
)
def test_bad_hello(rig_of: RigOf, target: str, reason: str, spoil: Mutation) -> None:
    rig = rig_of(1)
    payload = spoil(random.Random(1), wire.pack_hello(7, 12345))
    if target != "v1model" and len(payload) > len(wire.pack_hello(7, 12345)):
        pytest.skip("Tofino cannot see it")
    assert rig.process(rank_port(0), udp_frame(0, payload)) == []
    assert rig.drops() == {reason: 1}

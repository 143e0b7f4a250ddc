"""Entries and frames for the small programs about copies, drops and the controller's packets."""

from __future__ import annotations

from conformance.case import Arrive, Case, PacketOut, delete, insert, modify, program_case
from conformance.frames import counted, hexes
from p4reduce_controller.p4runtime.entries import DigestConfig, MulticastGroup, TableEntry
from rigs.entity_text import clone_session

_LENGTHS = [
    *((bytes_, more, 0, 3) for bytes_ in (0, 1, 3, 4, 7, 8, 9, 22, 23, 24, 255, 0xFFFF) for more in (0, 1, 255)),
    *((bytes_, 0, again, 3) for bytes_ in (0, 5, 10, 0xFFFF) for again in (1, 5, 10, 200)),
    *((bytes_, 0, 0, 0) for bytes_ in (0, 7, 8, 9)),
]
"""For truncate_by_field: the fields bytes, more and again, and how many fives of bytes are the payload."""


def cases() -> list[Case]:
    """Every case of this module."""
    return [*_clones(), *_again(), *_groups(), *_ends(), *_controller()]


def _clones() -> list[Case]:
    return [
        program_case(
            "clone_i2e",
            *hexes("0100000000000a"),
            insert(clone_session(7, (2, 5), (3, 6))),
            *(Arrive(4, bytes((operation, 9, 8, 7, 6, 5)) + b"tail") for operation in range(5)),
            modify(clone_session(7, (5, 1))),
            *hexes("01000000000001", "04000000000002"),
            delete(clone_session(7, (5, 1))),
            *hexes("01000000000001", "04000000000002"),
        ),
        program_case(
            "clone_e2e",
            insert(clone_session(8, (6, 0))),
            *counted((0, 1, 2), (0,), (0,), (0, 255)),
        ),
        program_case(
            "clone_truncated",
            insert(clone_session(3, (2, 1), packet_length_bytes=5)),
            *(step for size in (0, 1, 2, 3, 60) for step in counted((0, 1), (0,), (0,), tail=bytes(size))),
        ),
        program_case(
            "multicast_and_clone",
            insert(clone_session(4, (7, 1)), MulticastGroup(2, ((2, 1), (3, 2)))),
            *counted(range(8), (0,)),
        ),
    ]


def _again() -> list[Case]:
    return [
        program_case("resubmit", *counted(range(5), (1,), (1,), (1,)), *hexes("02")),
        program_case("recirculate", *counted(range(5), (1,), (1,), (0,), (0,)), *hexes("0300")),
    ]


def _groups() -> list[Case]:
    group = MulticastGroup(7, ((1, 10), (2, 11), (2, 12), (3, 13), (1, 65535)))
    probes = hexes("00070000000000", "0000000000001122", "00080000000000", "ffff00000000")
    return [
        program_case(
            "multicast_rids",
            *probes,
            insert(group, MulticastGroup(8, ((5, 0),))),
            *probes,
            modify(MulticastGroup(7, ((4, 1), (5, 2)))),
            *probes,
            delete(MulticastGroup(8, ())),
            *probes,
        ),
    ]


def _ends() -> list[Case]:
    return [
        program_case("drop", insert(MulticastGroup(5, ((5, 1),))), *counted(range(9)), *hexes("ff")),
        program_case(
            "drop_by_copy",
            insert(
                MulticastGroup(3, ((4, 1),)),
                TableEntry("MainIngress.choose", {"key": 1}, "MainIngress.send", {"port": 5}),
                TableEntry("MainIngress.choose", {"key": 7}, "MainIngress.send", {"port": 6}),
            ),
            *counted(range(8), (0, 1, 7, 8)),
        ),
        program_case("metadata_copy", *counted(range(9), (0,), (0,), (0,), (0,))),
        program_case(
            "truncate_by_field",
            *hexes(*(f"{b:04x}{m:02x}{a:02x}11223344" + "5566778899" * n for b, m, a, n in _LENGTHS)),
        ),
        program_case("truncate", *counted((0, 1, 2, 3, 10, 255), (0, 1, 2), tail=b"0123456789")),
        program_case(
            "egress_rewrite",
            insert(
                TableEntry("MainEgress.by_port", {"port": 1}, "MainEgress.rewrite", {"mac": 0x020000000001}),
                TableEntry("MainEgress.by_port", {"port": 2}, "MainEgress.drop"),
            ),
            *hexes("aabbccddeeff01", "aabbccddeeff02", "aabbccddeeff0399", "aabbccddeeff00", "aabb"),
        ),
    ]


def _controller() -> list[Case]:
    macs = [(mode, mac, port) for mode in (0, 1, 2) for mac in (1, 0xFFFFFFFFFFFF) for port in (1, 2, 300)]
    return [
        program_case(
            "packet_io",
            *(Arrive(port, bytes((command, 1, 2))) for port, command in ((1, 0), (2, 7), (300, 0xFF), (0, 9))),
            PacketOut(3, b"\x07out"),
            PacketOut(511, b"\x07dropped"),
            PacketOut(510, b"\x06back"),
            PacketOut(300, b"\x05" + bytes(200)),
        ),
        program_case(
            "digest",
            Arrive(1, bytes(7)),
            insert(DigestConfig("seen_t")),
            *(Arrive(port, bytes((mode,)) + mac.to_bytes(6, "big") + b"tail") for mode, mac, port in macs),
        ),
        program_case(
            "digest_and_log",
            insert(DigestConfig("seen_t")),
            *(Arrive(port, bytes((mode, mode + 7)) + mac.to_bytes(6, "big")) for mode, mac, port in macs),
        ),
    ]

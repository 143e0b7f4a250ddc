"""Entries and frames for the small programs that hold a group of constructs each.

Rows say what they show. The answer to each of them stands in the recording (`zcat recordings/stack.jsonl.gz`).
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from conformance.case import Arrive, Case, Step, Write, insert, program_case
from conformance.frames import counted, hexes, noise
from p4reduce_controller.p4runtime.entries import DigestConfig, MulticastGroup, TableEntry
from rigs.entity_text import clone_session

FRAMES = 60
EDGES = (0, 1, 2, 7, 127, 128, 129, 255)
MAC = 0x020000000002

Generator = Callable[[random.Random], bytes]


def cases() -> list[Case]:
    """Every case of this module."""
    return [
        program_case("arithmetic", *drawn(arithmetic)),
        program_case("stack", *named(STACK), *drawn(stack)),
        program_case("tables", *named(TABLES), *drawn(tables)),
        program_case("varbit", *named(VARBIT), *drawn(varbit)),
        program_case("unions", *named(UNIONS), *drawn(unions)),
        program_case("checksums", *named(CHECKSUMS), *drawn(checksums)),
        program_case("wide", *hexes("00"), *drawn(wide)),
        program_case("loops", *named(LOOPS), *drawn(loops)),
        program_case("hashes", *noise("hashes", 30, 7), *_dice()),
        program_case("state", *named(STATE)),
        program_case("signed_register_cell", *named(SIGNED_CELLS), program="state"),
        program_case("copies", *_copies()),
        program_case("l2", *_learning_switch()),
    ]


# ---- rows: what they show -> the frame

STACK = {  # operation, index, fault, count; then labels: value 7 bits ++ bottom, ttl
    "parser loop": "00 00 00 00 0240 0340 aa",
    "stack just full": "00 00 00 00 0240 0440 0740",
    "StackOutOfBounds": "00 00 00 00 0240 0440 0640 0940",
    "PacketTooShort": "00 00 00 00 0240 04",
    "verify": "00 00 00 00 0240 0500",
    "state not entered": "09 00 00 00 0240",
    "push_front": "01 00 00 00 0240 0540",
    "push_front drops the last": "01 00 00 00 0240 0440 0740",
    "pop_front": "02 00 00 00 0240 0540",
    "pop_front of two": "05 00 00 00 0240 0440 0740",
    "write at an index of the frame": "03 01 00 00 0240 0540",
    "read at an index of the frame": "06 01 00 00 0240 0522",
    "header assignment": "04 00 00 00 0240 0540",
    "setInvalid": "07 00 00 00 0240 0540",
    "header comparison": "08 00 00 00 0240 0240 0740",
    "headers differ": "08 00 00 00 0240 0440 0740",
}
TABLES = {  # table, a, b, c; then result and trace
    "exact": "01 01 0002 00000000 0000",
    "exact, miss": "01 01 0009 00000000 0000",
    "lpm /8": "02 01 0000 0a010101 0000",
    "lpm /16": "02 01 0000 0a0b0101 0000",
    "lpm /32": "02 01 0000 0a0b0c0d 0000",
    "lpm /0": "02 02 0000 ffffffff 0000",
    "lpm, miss": "02 03 0000 0a0b0c0d 0000",
    "ternary, first entry wins": "03 12 0001 00000000 0000",
    "ternary, second": "03 12 0002 00000000 0000",
    "ternary, third": "03 13 0002 00000000 0000",
    "range and ternary": "04 00 0096 00000000 0000",
    "range overlapped": "04 00 0096 00000001 0000",
    "range, upper end": "04 00 012c 00000000 0000",
    "range, outside": "04 00 012d 00000000 0000",
    "optional, both": "05 01 0002 00000000 0000",
    "optional, any first": "05 07 0002 00000000 0000",
    "optional, any second": "05 03 0007 00000000 0000",
    "action_run": "06 01 0000 00000000 0000",
    "action_run of the default": "06 09 0000 00000000 0000",
    "exit": "06 02 0000 00000000 0000",
}
VARBIT = {  # an IPv4 header, 2 bytes skipped, a header of 2 bytes whose second tells a wrong checksum
    "empty varbit": "45000018 00000000 4011 7cd3 7f000001 7f000001 ffff 0000 aabb",
    "varbit": "46000018 00000000 4011 77cd 7f000001 7f000001 01020304 ffff 0000 aabb",
    "wrong checksum": "45000018 00000000 4011 7cd4 7f000001 7f000001 ffff 0000 aabb",
    "varbit header copied": "46010018 00000000 4011 77cc 7f000001 7f000001 01020304 ffff 0000",
    "varbit header removed": "46020018 00000000 4011 77cb 7f000001 7f000001 01020304 ffff 0000 aabb",
    "checksum condition": "46030018 00000000 4011 77ca 7f000001 7f000001 01020304 ffff 0000",
    "varbit cut short": "46000018 00000000 4011 77cd 7f000001 7f000001 0102",
    "length below the minimum": "44000018 00000000 4011 77cd 7f000001 7f000001",
    "lookahead": "60 11 22",
}
UNIONS = {  # kind, operation, then a header of 1 or 4 bytes
    "union, first member": "01 03 05 99",
    "union, second member": "02 00 01020304 99",
    "a valid member replaces the other": "01 01 05 99",
    "member removed": "01 02 05 99",
    "invalid union": "03 00 05",
}
CHECKSUMS = {  # update?, wrong; pseudo header, UDP header, payload of odd length
    "checksum over the payload": "0100 0a000001 0a000002 0007 0008 000b 2764 616263",
    "checksum not wanted": "0000 0a000001 0a000002 0007 0008 000b 0000 616263",
    "wrong checksum over the payload": "0000 0a000001 0a000002 0007 0008 000b 2765 616263",
}
LOOPS = {  # a, n, sum, chosen, ranked
    "loop with break and continue": "05 14 0000 00 00",
    "declared entries": "01 02 0000 00 00",
}
STATE = {  # operation, index, value, result, small, color
    "else in an action": "03 00 0005 0000 0000",
    "if in an action": "03 00 000f 0000 0000",
    "return in an action": "03 00 0019 0000 0000",
    "register written": "01 04 1234 0000 0000",
    "register read": "02 04 0000 0000 0000",
    "register never written": "02 03 0000 0000 0000",
    "meter without rates": "05 01 0000 0000 0007",
    "direct meter, miss": "06 01 0000 0000 0007",
    "log_msg": "07 03 0009 0000 0000",
    "assert that holds": "08 00 0001 0000 0000",
}
SIGNED_CELLS = {
    "signed register cell, positive": "04 00 0000 0000 7f00",
    "signed register cell, negative": "04 00 0000 0000 8000",
}


def named(rows: dict[str, str]) -> list[Step]:
    """The frames of hand-written rows, in their order."""
    return hexes(*rows.values())


# ---- seeded random frames


def drawn(generator: Generator) -> list[Step]:
    """Frames of a generator, always the same ones."""
    source = random.Random(generator.__name__)
    return [Arrive(1, generator(source)) for _ in range(FRAMES)]


def some(source: random.Random, length: int) -> bytes:
    return bytes(source.choice((*EDGES, source.randrange(256))) for _ in range(length))


def arithmetic(source: random.Random) -> bytes:
    return some(source, 11 + source.randrange(3))


def stack(source: random.Random) -> bytes:
    count = source.randrange(1, 5)  # operations 3 and 6 would read elements that are not there
    frame = bytes([source.choice((0, 1, 2, 5, 7, 9)), 0, 0, 0])
    for index in range(count):
        frame += bytes([source.randrange(128) << 1 | (index == count - 1), source.choice((0, 64, 64, 64))])
    return frame + some(source, source.randrange(3))


def tables(source: random.Random) -> bytes:
    a, b = (
        source.choice((1, 2, 3, 0x10, 0x12, 0x13)),
        source.choice((1, 2, 3, 5, 100, 150, 200, 201, 300, 301)),
    )
    c = source.choice((0x0A0B0C0D, 0x0A0B0101, 0x0A010101, source.getrandbits(32)))
    return struct.pack(">BBHIH", source.randrange(8), a, b, c, 0)


def varbit(source: random.Random) -> bytes:
    words = source.choice((5, 6, 7, 15))
    frame = bytes([0x40 | words, source.randrange(5)]) + some(source, words * 4 - 2 + 4 + source.randrange(4))
    return frame[: source.choice((len(frame), source.randrange(1, len(frame))))]


def unions(source: random.Random) -> bytes:
    kind = source.randrange(4)
    return bytes([kind, source.randrange(4)]) + some(source, 4 + source.randrange(4))


def checksums(source: random.Random) -> bytes:
    return bytes([source.randrange(2), 0]) + some(source, 16 + source.randrange(20))


def wide(source: random.Random) -> bytes:
    return struct.pack(">H", source.randrange(4)) + source.randbytes(128)


def loops(source: random.Random) -> bytes:
    return some(source, 6)


# ---- entries and frames


def _dice() -> list[Step]:
    """Random numbers that can only be one."""
    return [Arrive(1, b"1234567" + bytes((number, number))) for number in (1, 6, 255)]


def _copies() -> list[Step]:
    """An operation a frame: 1 clone, 2 resubmit, 3 egress clone, 4 recirculate, 5 clone and drop, 6 truncate,
    7 multicast, 8 another header."""

    def commands(*operations: int) -> list[Step]:
        return counted(operations, *((0,) for _ in range(7)), tail=b"abcd", port=9)

    session, group = clone_session(5, (2, 21), (4, 22)), MulticastGroup(2, ((7, 1), (6, 2), (8, 3)))
    return [
        *commands(1, 3, 5, 7),  # sessions and groups that are not there
        insert(session, clone_session(6, (3, 0)), group),
        *commands(*range(9)),
        Write((("delete", session), ("delete", group))),
        *commands(1, 5, 7),
    ]


def _learning_switch() -> list[Step]:
    def mac(address: int, action: str | None = "forward", **params: int) -> TableEntry:
        return TableEntry("MainIngress.mac", {"hdr.ethernet.dst": address}, action and f"MainIngress.{action}", params)

    def default(action: str | None = None, **params: int) -> Write:
        entry = TableEntry("MainIngress.mac", {}, action and f"MainIngress.{action}", params, is_default=True)
        return Write((("modify", entry),))

    known = {"hdr.ethernet.src": 0x0200000000AA, "std.ingress_port": 3}
    frames = [
        Arrive(port, bytes.fromhex(f"{MAC:012x} 0200000000{source:02x} 0800") + b"payload")
        for port, source in ((1, 0xAA), (3, 0xAA), (3, 0xBB), (2, 0xAA))
    ]
    return [
        *frames,
        insert(DigestConfig("learn_t"), MulticastGroup(1, ((1, 0), (2, 0), (3, 0)))),
        *frames,  # floods, but not back
        insert(mac(MAC, port=4), TableEntry("MainIngress.learned", known, "MainIngress.known")),
        *frames,
        Write((("modify", mac(MAC, port=3)),)),
        *frames,
        Write((("modify", mac(MAC, "drop")),)),
        *frames,
        insert(mac(MAC, "flood"), mac(1, "flood"), mac(2, "flood"), mac(3, "flood")),  # there; full
        Write((("modify", mac(9, "flood")), ("delete", mac(9, None)))),
        Write((("delete", mac(MAC, None)),)),
        default("forward", port=2),
        *frames,
        default(),
        *frames,
    ]

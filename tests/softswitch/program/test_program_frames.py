"""One construct a row: a frame into a program, and the one frame that comes out.

All rows that do not read undefined values were also run through BMv2 (see test_program_bmv2.py).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from p4reduce_switch.program import Program

# name, program, frame in, frame out (at port 1)
ROWS = [
    # stack: operation, index, fault, count; then labels: value 7 bits ++ bottom, ttl
    ("parser loop", "stack", "00 00 00 00 0240 0340 aa", "00 00 00 01 0240 0340 aa"),
    ("stack just full", "stack", "00 00 00 00 0240 0440 0740", "00 00 00 02 0240 0440 0740"),
    ("StackOutOfBounds", "stack", "00 00 00 00 0240 0440 0640 0940", "00 00 01 02 0240 0440 0640 0940"),
    ("PacketTooShort", "stack", "00 00 00 00 0240 04", "00 00 02 00 0240 04"),
    ("verify", "stack", "00 00 00 00 0240 0500", "00 00 03 00 0240 0500"),
    ("state not entered", "stack", "09 00 00 00 0240", "09 00 00 00 0240"),
    ("push_front", "stack", "01 00 00 00 0240 0540", "01 00 00 01 0a40 0240 0540"),
    ("push_front drops the last", "stack", "01 00 00 00 0240 0440 0740", "01 00 00 02 0a40 0240 0440"),
    ("pop_front", "stack", "02 00 00 00 0240 0540", "02 00 00 01 0540"),
    ("pop_front of two", "stack", "05 00 00 00 0240 0440 0740", "05 00 00 02 0740"),
    ("write at an index of the frame", "stack", "03 01 00 00 0240 0540", "03 01 00 01 0240 0563"),
    ("read at an index of the frame", "stack", "06 01 00 00 0240 0522", "06 01 00 01 0222 0522"),
    ("header assignment", "stack", "04 00 00 00 0240 0540", "04 00 00 01 0240 0240"),
    ("setInvalid", "stack", "07 00 00 00 0240 0540", "07 00 00 01 0540"),
    ("header comparison", "stack", "08 00 00 00 0240 0240 0740", "08 00 4d 02 0240 0240 0740"),
    ("headers differ", "stack", "08 00 00 00 0240 0440 0740", "08 00 00 02 0240 0440 0740"),
    # tables: table, a, b, c; then result and trace
    ("exact", "tables", "01 01 0002 00000000 0000", "01 01 0002 00000000 0a 81"),
    ("exact, miss", "tables", "01 01 0009 00000000 0000", "01 01 0009 00000000 ff 82"),
    ("lpm /8", "tables", "02 01 0000 0a010101 0000", "02 01 0000 0a010101 14 80"),
    ("lpm /16", "tables", "02 01 0000 0a0b0101 0000", "02 01 0000 0a0b0101 15 80"),
    ("lpm /32", "tables", "02 01 0000 0a0b0c0d 0000", "02 01 0000 0a0b0c0d 16 80"),
    ("lpm /0", "tables", "02 02 0000 ffffffff 0000", "02 02 0000 ffffffff 17 80"),
    ("lpm, miss", "tables", "02 03 0000 0a0b0c0d 0000", "02 03 0000 0a0b0c0d ff 80"),
    ("ternary, first entry wins", "tables", "03 12 0001 00000000 0000", "03 12 0001 00000000 1e 80"),
    ("ternary, second", "tables", "03 12 0002 00000000 0000", "03 12 0002 00000000 1f 80"),
    ("ternary, third", "tables", "03 13 0002 00000000 0000", "03 13 0002 00000000 20 80"),
    ("range and ternary", "tables", "04 00 0096 00000000 0000", "04 00 0096 00000000 28 80"),
    ("range overlapped", "tables", "04 00 0096 00000001 0000", "04 00 0096 00000001 29 80"),
    ("range, upper end", "tables", "04 00 012c 00000000 0000", "04 00 012c 00000000 29 80"),
    ("range, outside", "tables", "04 00 012d 00000000 0000", "04 00 012d 00000000 ff 80"),
    ("optional, both", "tables", "05 01 0002 00000000 0000", "05 01 0002 00000000 32 80"),
    ("optional, any first", "tables", "05 07 0002 00000000 0000", "05 07 0002 00000000 33 80"),
    ("optional, any second", "tables", "05 03 0007 00000000 0000", "05 03 0007 00000000 34 80"),
    ("action_run", "tables", "06 01 0000 00000000 0000", "06 01 0000 00000000 3c 93"),
    ("action_run of the default", "tables", "06 09 0000 00000000 0000", "06 09 0000 00000000 ff 94"),
    ("exit", "tables", "06 02 0000 00000000 0000", "06 02 0000 00000000 3d 00"),
    # varbit: an IPv4 header, 2 bytes skipped, a header of 2 bytes whose second tells a wrong checksum
    (
        "empty varbit",
        "varbit",
        "45000018 00000000 4011 7cd3 7f000001 7f000001 ffff 0000 aabb",
        "45000018 00000000 3f11 7dd3 7f000001 7f000001 0000 aabb",
    ),
    (
        "varbit",
        "varbit",
        "46000018 00000000 4011 77cd 7f000001 7f000001 01020304 ffff 0000 aabb",
        "46000018 00000000 3f11 78cd 7f000001 7f000001 01020304 0000 aabb",
    ),
    (
        "wrong checksum",
        "varbit",
        "45000018 00000000 4011 7cd4 7f000001 7f000001 ffff 0000 aabb",
        "45000018 00000000 3f11 7dd3 7f000001 7f000001 0001 aabb",
    ),
    (
        "varbit header copied",
        "varbit",
        "46010018 00000000 4011 77cc 7f000001 7f000001 01020304 ffff 0000",
        "46010018 00000000 3f11 78cc 7f000001 7f000001 01020304 "
        "46010018 00000000 3f11 77cc 7f000001 7f000001 01020304 0000",
    ),
    (
        "varbit header removed",
        "varbit",
        "46020018 00000000 4011 77cb 7f000001 7f000001 01020304 ffff 0000 aabb",
        "0000 aabb",
    ),
    (
        "checksum condition",
        "varbit",
        "46030018 00000000 4011 77ca 7f000001 7f000001 01020304 ffff 0000",
        "46030018 00000000 3f11 77ca 7f000001 7f000001 01020304 0000",
    ),
    (
        "varbit cut short",
        "varbit",
        "46000018 00000000 4011 77cd 7f000001 7f000001 0102",
        "46000018 00000000 4011 77cd 7f000001 7f000001 0102",
    ),
    (
        "length below the minimum",
        "varbit",
        "44000018 00000000 4011 77cd 7f000001 7f000001",
        "44000018 00000000 4011 77cd 7f000001 7f000001",
    ),
    ("lookahead", "varbit", "60 11 22", "60 11 22"),
    # unions: kind, operation, then a header of 1 or 4 bytes
    ("union, first member", "unions", "01 03 05 99", "11 03 06 99"),
    ("union, second member", "unions", "02 00 01020304 99", "12 00 01020304 99"),
    ("a valid member replaces the other", "unions", "01 01 05 99", "11 01 aabbccdd 99"),
    ("member removed", "unions", "01 02 05 99", "11 02 99"),
    ("invalid union", "unions", "03 00 05", "03 00 05"),
    # checksums: update?, wrong; pseudo header, UDP header, payload of odd length
    (
        "checksum over the payload",
        "checksums",
        "0100 0a000001 0a000002 0007 0008 000b 2764 616263",
        "0100 0a000001 0a000002 0007 0009 000b 2763 616263",
    ),
    (
        "checksum not wanted",
        "checksums",
        "0000 0a000001 0a000002 0007 0008 000b 0000 616263",
        "0000 0a000001 0a000002 0007 0009 000b 0000 616263",
    ),
    (
        "wrong checksum over the payload",
        "checksums",
        "0000 0a000001 0a000002 0007 0008 000b 2765 616263",
        "0001 0a000001 0a000002 0007 0009 000b 2765 616263",
    ),
    # state: operation, index, value, result, small, color
    ("else in an action", "state", "03 00 0005 0000 0000", "03 00 0005 0067 0000"),
    ("if in an action", "state", "03 00 000f 0000 0000", "03 00 000f 0066 0000"),
    ("return in an action", "state", "03 00 0019 0000 0000", "03 00 0019 0001 0000"),
    ("signed register cell", "state", "04 00 0000 0000 8000", "04 00 0000 ffff 8000"),
    # loops: a, n, sum, chosen, ranked
    ("loop with break and continue", "loops", "05 14 0000 00 00", "05 14 0034 00 06"),
    ("declared entries", "loops", "01 02 0000 00 00", "01 02 0001 05 07"),
]


@pytest.mark.parametrize(
    ("program", "frame", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_row(load: Callable[[str], Program], program: str, frame: str, expected: str) -> None:
    out = load(program).process(1, bytes.fromhex(frame))
    assert [(port, data.hex(" ")) for port, data in out] == [(1, bytes.fromhex(expected).hex(" "))]


def test_a_packet_that_ends_too_early_is_passed_on_unparsed(load: Callable[[str], Program]) -> None:
    assert load("wide").process(1, b"\0") == [(1, b"\0")]
    assert load("wide").process(1, b"") == [(1, b"")]

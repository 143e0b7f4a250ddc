"""Frames for the small programs about headers and the parser."""

from __future__ import annotations

from conformance.case import Case, program_case
from conformance.frames import counted, hexes, noise

LABELS = ("01", "0201", "020403", "02040609", "0204060801", "02040608", "020406", "", "01ff", "0203ee")
"""Labels after the two bytes of h: the lowest bit is set in the last one."""


_SKIPS = (0, 1, 2, 3, 4, 7, 8, 9, 127, 128, 255)


def cases() -> list[Case]:
    """Every case of this module."""
    return [*_stacks(), *_validity(), *_reading(), *_deciding()]


def _stacks() -> list[Case]:
    def operations(*numbers: int) -> list[str]:
        return [f"{number:02x}00{labels}" for number in numbers for labels in LABELS]

    return [
        program_case("stack_parse", *hexes(*operations(0)), *noise("labels", 40, 2, 3, 4, 5, 6, 7)),
        program_case("stack_push", *hexes(*operations(0, 1, 2, 3))),
        program_case("stack_pop", *hexes(*operations(1, 2, 3, 4))),
        program_case("stack_index", *hexes(*(f"00{i:02x}{labels}aa" for i in range(6) for labels in LABELS))),
    ]


def _validity() -> list[Case]:
    return [
        program_case("union_parse", *hexes("00aabb", "01aabbcc", "02aabb", "00", "01aa", "01ffffffee")),
        program_case("union_switch", *hexes("00aabbcc", "01aabbcc", "02aabbcc", "03aabbcc", "04aabb")),
        program_case(
            "varbit_options",
            *hexes("0000", "0000aa", "0100aabbcc", "0200aabbcc", "0400aabbccddeeff0011ab", "0480aabbccddeeff0011ab"),
            *hexes("0500aabbccddeeff00112233445566", "ff00aabbccddeeff00112233445566", "0100aa", "0180aabb", "00"),
        ),
        program_case(
            "varbit_equality",
            *hexes("00000707", "00000708", "0101 07aa 07aa", "0101 07aa 07ab", "0404 07aabbccdd 07aabbccdd"),
            *hexes("0404 07aabbccdd 07aabbccde", "0404 07aabbccdd 08aabbccdd", "0201 0700aa 07aa", "0001 07 0700"),
        ),
        program_case("header_copy", *hexes(*(f"{o:02x}aabbccddee" for o in range(6)))),
        program_case("set_invalid", *counted(range(16), (0xAA,), (0xBB,), tail=b"!")),
        program_case(
            "header_equality",
            *hexes("0012341234", "0012341235", "0022341234", "9912341235", "9812341234", "00ffffffffaa"),
        ),
    ]


def _reading() -> list[Case]:
    return [
        program_case("lookahead", *hexes("a1b2c3d4", "b1b2c3d4", "a1b2c3", "a1b2", "b1b2", "a1", "b1")),
        program_case(
            "lookahead_struct", *hexes("01230000", "f1230000aa", "01248000", "01247fff", "0123", "012380", "0000ffff00")
        ),
        program_case("packet_too_short", *hexes(*("0102030405060708090a0b0c"[: 2 * n] for n in range(1, 13)))),
        program_case("value_set", *counted(range(5), (0,), tail=bytes(13))),
        program_case("advance", *hexes("00112233445566", "01112233445566", "02112233", "03112233445566", "0311", "00")),
        program_case(
            "advance_by_field",
            *hexes(*(f"{count:02x}" + "aabbccddeeff112233"[: 2 * size] for count in _SKIPS for size in (0, 2, 5, 9))),
        ),
        program_case("subparser", *hexes("00010203", "01010203", "02010203", "020102", "0201", "01")),
        program_case("parse_by_port", *(s for p in range(1, 5) for s in hexes("ffff01", "00ff", "fe", port=p))),
    ]


def _deciding() -> list[Case]:
    return [
        program_case("select_mask", *counted((0, 9, 10, 20, 21, 0x40, 0x7F, 0x80, 0xFF), (0, 4, 5, 6, 7, 0xFF))),
        program_case("select_no_match", *hexes("0000aa", "0100aa", "0200aa", "0300", "0100", "01", "ff00ffff")),
        program_case("verify_error", *counted((0, 1, 2, 98, 99, 100, 101, 254, 255), (7,), tail=b"t"), *hexes("0207")),
        program_case("reject_state", *hexes("00aabbcc", "01aabbcc", "01aa", "02ffff")),
        program_case("parser_arithmetic", *noise("sums", 60, 4, 5, 6)),
    ]

"""Hash algorithms: published check values, and through a program."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import pytest

from p4reduce_contracts.wire import internet_checksum
from p4reduce_switch.program import Program
from rigs import hashes

CHECK = b"123456789"


@pytest.mark.parametrize(
    ("function", "data", "expected"),
    [
        (hashes.crc16, CHECK, 0xBB3D),  # CRC-16/ARC
        (hashes.crc_ccitt, CHECK, 0x29B1),  # CRC-16/CCITT-FALSE
        (hashes.crc32, CHECK, 0xCBF43926),
        (internet_checksum, bytes.fromhex("0001f203f4f5f6f7"), 0x220D),  # RFC 1071, section 3
        (internet_checksum, b"", 0xFFFF),
        (internet_checksum, b"\xff\xff", 0),
        (internet_checksum, b"\0\0", 0xFFFF),
        (internet_checksum, b"\x01", 0xFEFF),
        (hashes.xor16, bytes.fromhex("1234000f80"), 0x923B),
        (hashes.xor32, bytes.fromhex("1234000f80"), 0x9234000F),
        (hashes.identity, CHECK, 0x3132333435363738),
        (hashes.identity, b"\x01\x02", 0x0102),
    ],
)
def test_check_values(function: Callable[[bytes], int], data: bytes, expected: int) -> None:
    assert function(data) == expected


def test_hashes_of_fields(load: Callable[[str], Program]) -> None:
    program = load("hashes")
    program.random.seed(1)
    data = b"1234567" + bytes((1, 6))
    ((port, out),) = program.process(1, data)
    crc16, crc32, csum, xor, identity, ragged, bounded, dice = struct.unpack(">HIHHQHHB", out[9:])
    assert (port, out[:9]) == (1, data)
    assert crc16 == hashes.crc16(data[:7])
    assert crc32 == zlib.crc32(data[:7])
    assert csum == internet_checksum(data[:7])
    assert xor == hashes.xor16(data[:7])
    assert identity == int.from_bytes(data[:7], "big")
    assert ragged == hashes.crc16(bytes.fromhex("353370"))  # 12 bits ++ 8 bits, filled with zeros
    assert bounded == 100 + zlib.crc32(data[:4]) % 10
    assert 1 <= dice <= 6

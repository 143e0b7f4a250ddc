"""The hash algorithms of v1model, on bytes: what compiled programs are compared with."""

from __future__ import annotations

import zlib


def _crc16_table(polynomial: int, reflected: bool) -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte if reflected else byte << 8
        for _ in range(8):
            if reflected:
                crc = crc >> 1 ^ (polynomial if crc & 1 else 0)
            else:
                crc = (crc << 1 ^ (polynomial if crc & 0x8000 else 0)) & 0xFFFF
        table.append(crc)
    return tuple(table)


_ARC = _crc16_table(0xA001, reflected=True)
_CCITT = _crc16_table(0x1021, reflected=False)


def crc16(data: bytes) -> int:
    """CRC-16/ARC: polynomial 0x8005 reflected, initial value 0."""
    crc = 0
    for byte in data:
        crc = crc >> 8 ^ _ARC[(crc ^ byte) & 0xFF]
    return crc


def crc_ccitt(data: bytes) -> int:
    """CRC-16/CCITT-FALSE: polynomial 0x1021, initial value 0xFFFF."""
    crc = 0xFFFF
    for byte in data:
        crc = (crc << 8 & 0xFFFF) ^ _CCITT[crc >> 8 ^ byte]
    return crc


def crc32(data: bytes) -> int:
    """CRC-32 of IEEE 802.3."""
    return zlib.crc32(data)


def xor16(data: bytes) -> int:
    """Exclusive or of the 16-bit words; an odd last byte is the high half of a word."""
    result = 0
    for index, byte in enumerate(data):
        result ^= byte if index & 1 else byte << 8
    return result


def xor32(data: bytes) -> int:
    """Exclusive or of the 32-bit words, the last one filled with zeros."""
    result = 0
    for index, byte in enumerate(data):
        result ^= byte << (24 - 8 * (index & 3))
    return result


def identity(data: bytes) -> int:
    """The first 8 bytes as a number."""
    return int.from_bytes(data[:8], "big")

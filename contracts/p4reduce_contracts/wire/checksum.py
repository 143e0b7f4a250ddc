"""The Internet checksum (RFC 1071), which IPv4, ICMP and UDP headers carry."""

from __future__ import annotations


def internet_checksum(data: bytes) -> int:
    """Return the 16-bit Internet checksum of `data`; an odd last byte is the high half of a word.

    2**16 is 1 modulo 65535, so one division does the one's complement sum. That sum is 0 only where all bytes are 0:
    any other multiple of 65535 is 0xFFFF, whose checksum is 0. UDP alone writes 0xFFFF in the place of 0, because 0
    means there that there is no checksum (RFC 768): `internet_checksum(...) or 0xFFFF`.
    """
    number = int.from_bytes(data + b"\0" if len(data) & 1 else data, "big")
    return 0xFFFF - (number % 0xFFFF or (0xFFFF if number else 0))

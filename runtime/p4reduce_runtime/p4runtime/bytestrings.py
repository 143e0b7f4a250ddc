"""P4Runtime byte strings: unsigned, big-endian, no leading zero byte; zero is one zero byte (spec, "Bytestrings")."""

from __future__ import annotations


def encode(value: int, bitwidth: int) -> bytes:
    """The canonical byte string of `value`; ValueError when it does not fit `bitwidth` bits."""
    if not 0 <= value < 1 << bitwidth:
        raise ValueError(f"{value} does not fit {bitwidth} bits")
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def decode(data: bytes) -> int:
    """The value of a byte string. Leading zero bytes are accepted, as the spec requires of a receiver."""
    return int.from_bytes(data, "big")

"""Externs: counters, registers, meters, calculations (hashes over fields), and action profiles."""

from __future__ import annotations

from enum import Enum, StrEnum

from p4reduce_switch.program.ir.intervals import Data, Node
from p4reduce_switch.program.ir.places import FieldRef, Header


class Counter(Node, frozen=True):
    """An indirect counter array."""

    name: str
    size: int


class Register(Node, frozen=True):
    """A register array; cells are unsigned."""

    name: str
    size: int
    bitwidth: int


class MeterUnit(StrEnum):
    """The unit that a meter counts: bytes or packets."""

    PACKETS = "packets"
    BYTES = "bytes"


class Meter(Node, frozen=True):
    """An indirect meter array with two rates."""

    name: str
    size: int
    unit: MeterUnit


class DirectMeter(Node, frozen=True):
    """A meter for each entry of a table; the color goes to `result`."""

    name: str
    unit: MeterUnit
    result: FieldRef


class Algorithm(Enum):
    """A hash algorithm; the value is the width of its result in bits, and a name."""

    CRC16 = (16, "crc16")
    CRC_CCITT = (16, "crcCCITT")
    CRC32 = (32, "crc32")
    CSUM16 = (16, "csum16")
    XOR16 = (16, "xor16")
    XOR32 = (32, "xor32")
    IDENTITY = (64, "identity")
    RANDOM = (32, "random")
    """A random number, which is no hash; BMv2 rejects it."""

    @property
    def bits(self) -> int:
        """Width of the result."""
        return self.value[0]


class Piece(Node, frozen=True):
    """An input of a calculation, a field or a number; a field is omitted while its header is invalid (None: never)."""

    value: Data
    bits: int | None
    """Width in bits; None for a varbit field, whose length in bits is the slot `length`."""
    header: Header | None
    length: int = 0
    """A slot."""


class Calculation(Node, frozen=True):
    """A hash over pieces, and over the payload after them if `payload`."""

    name: str
    algorithm: Algorithm
    pieces: tuple[Piece, ...]
    payload: bool


class ActionProfile(Node, frozen=True):
    """An action profile: members, which are actions with arguments that table entries refer to.

    With a `selector` entries may also refer to groups: the hash selects a member of the group for each packet.
    """

    name: str
    max_size: int
    selector: Calculation | None

"""Externs: counters, registers, meters, calculations (hashes over fields), and action profiles."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

from p4reduce_switch.program.ir.intervals import Data
from p4reduce_switch.program.ir.places import FieldRef, Header


@dataclass(frozen=True, eq=False)
class Counter:
    """An indirect counter array."""

    name: str
    size: int


@dataclass(frozen=True, eq=False)
class Register:
    """A register array; cells are unsigned."""

    name: str
    size: int
    bitwidth: int


class MeterUnit(StrEnum):
    """The unit of a meter."""

    PACKETS = "packets"
    BYTES = "bytes"


@dataclass(frozen=True, eq=False)
class Meter:
    """An indirect meter array with two rates."""

    name: str
    size: int
    unit: MeterUnit


@dataclass(frozen=True, eq=False)
class DirectMeter:
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


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """An input of a calculation, a field or a number; a field is omitted while its header is invalid (None: never)."""

    value: Data
    bits: int | None
    """None for a varbit field, whose length in bits is the slot `length`."""
    header: Header | None
    length: int = 0
    """A slot."""


@dataclass(frozen=True, eq=False)
class Calculation:
    """A hash over pieces, and over the payload after them if `payload`."""

    name: str
    algorithm: Algorithm
    pieces: tuple[Piece, ...]
    payload: bool


@dataclass(frozen=True, eq=False)
class ActionProfile:
    """An action profile: members, which are actions with arguments that table entries refer to.

    With a `selector` entries may also refer to groups: the hash selects a member of the group for each packet.
    """

    name: str
    max_size: int
    selector: Calculation | None

"""Frames for the small programs about numbers, state, checksums and control flow."""

from __future__ import annotations

import random

from conformance.case import Arrive, Case, Step, Write, insert, modify, program_case
from conformance.frames import counted, hexes, noise, some_bytes
from conformance.rows_tables import entry
from p4reduce_controller.p4runtime.entries import MeterConfig, MeterEntry
from rigs import entity_text
from rigs.entity_text import exact, rates

HASHES = ("crc16", "crc32", "csum16", "xor16", "identity", "crc16_custom", "crc32_custom")


_AMOUNTS = (0, 1, 3, 7, 8, 31, 32, 255)


def cases() -> list[Case]:
    """Every case of this module."""
    return [*_numbers(), *_bits(), *_state(), *_sums(), *_flow(), *_names()]


def _numbers() -> list[Case]:
    ones, zero = "ff" * 32, "00" * 32
    edges = (0, 1, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
    return [
        program_case(
            "wide_arithmetic",
            *hexes(ones + ones, zero + ones, ones + zero, zero + "00" * 31 + "01", "80" + "00" * 31 + "80" + "00" * 31),
            *noise("wide", 20, 64, 65, 63),
        ),
        program_case("wide_bitwise", *_operands()),
        program_case("saturating", *(_signed(a, b) for a in edges for b in edges)),
        program_case("wrap_around", *noise("wrap", 60, 6)),
        program_case("signed_compare", *counted((*edges, 0xFB, 0xFA, 100, 101), edges, (0,), tail=b"")),
        program_case("shifts", *(_shift(by, v) for by in (0, 1, 7, 15, 16, 17, 255) for v in (0x8001, 0x7FFF, 0xFFFF))),
        program_case(
            "nested_shifts",
            *(Arrive(1, bytes((a, b)) + bytes.fromhex("80000001") * 7) for a in _AMOUNTS for b in _AMOUNTS),
            *noise("amounts", 30, 30),
        ),
        program_case("divide", *noise("divide", 30, 6), *hexes("ffff00000000", "000700000000")),
        program_case("mux", *counted(edges, edges, (0,))),
    ]


def _bits() -> list[Case]:
    return [
        program_case("slice_read", *noise("slices", 40, 8, 9)),
        program_case("slice_write", *noise("targets", 40, 12, 14)),
        program_case("casts", *counted(range(0, 256, 5), *((0xA5,) for _ in range(8)))),
        program_case("concat", *noise("concat", 40, 9)),
        program_case(
            "bool_fields", *(Arrive(1, bytes((flags, 9, 9))) for flags in (0, 1, 0x80, 0x81, 0x0A, 0x0B, 0x8A, 0xFF))
        ),
        program_case("logic", insert(entry("t", {"b": 3}, "NoAction"), entry("t", {"b": 8}, value=0x40)), *_logic()),
        program_case("enums", *counted((0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF), (0,))),
    ]


def _state() -> list[Case]:
    return [
        program_case("counters", *(Arrive(1, bytes((i % 11,)) + bytes(i)) for i in range(40)), *hexes("ff")),
        program_case(
            "direct_counter",
            insert(entry("keys", {"key": 1}, value=1), entry("keys", {"key": 2}, "NoAction")),
            *(Arrive(1, bytes((i % 4,)) + bytes(i)) for i in range(1, 30)),
        ),
        program_case("direct_meter", insert(entry("keys", {"key": 1}, "meter_it")), *counted((1, 2, 1), (5,))),
        program_case("indirect_meter", *counted(range(6), (5,))),
        program_case("meter_colors", *_indirect_colors(), program="indirect_meter"),
        program_case("direct_meter_colors", *_direct_colors(), program="direct_meter"),
        program_case("register_cells", *noise("cells", 80, 4), *hexes("01001234", "02010002", "00000000", "0001ffff")),
        program_case(
            "register_bounds",
            *(s for i in (0, 3, 4, 5, 255) for s in hexes(f"01{i:02x}{i + 1:04x}", f"00{i:02x}aaaa")),
        ),
        program_case("register_places", *noise("places", 60, 10, 11, 9)),
        program_case("register_wide", *noise("registers", 20, 73)),
        program_case("controls_twice", *counted((0, 1, 0, 0, 1, 3, 2), (9,))),
        program_case("metadata_zero", *counted((1, 255, 0, 7), (9,), (9,), (9,))),
    ]


def _sums() -> list[Case]:
    ip = "01000000ffff0000"
    sums = hexes(ip + "ffff", ip + "0000", "02" + ip[2:] + "1234", "010012340000ffffedca")
    return [
        *(program_case(f"hash_{name}", *noise(name, 30, 20), *hexes("00" * 20, "ff" * 20)) for name in HASHES),
        program_case("checksum_verify", *sums),
        program_case("checksum_update", *noise("update", 40, 12, 14)),
        program_case(
            "checksum_payload",
            *hexes("0100feff0000", "0100feff0000aabb", "0100feff000001", "020000000000", "0100fdfe00000101"),
            *noise("payload", 40, 6, 7, 8, 9, 20, 21),
        ),
    ]


def _flow() -> list[Case]:
    return [
        program_case("exit_statement", *counted(range(5), (0,), (0,))),
        program_case("return_statement", *counted(range(5), (0,))),
        program_case("switch_value", *counted((0, 1, 2, 3, 4, 0xFF), (0,))),
        program_case("functions", *counted((0, 1, 5, 255), (0, 1, 6, 255), (9,))),
        program_case("assertion", *counted((0, 255))),
        program_case("log_messages", *counted((0, 3, 4), (0,))),
    ]


def _names() -> list[Case]:
    return [
        program_case("standard_metadata", *(Arrive(p, bytes(12 + n)) for p in (0, 1, 2, 300, 509) for n in (0, 1, 50))),
        program_case("tuples_and_structs", *counted((0, 5, 0x15), (0,), (0, 5), (0,))),
    ]


_SIZES = (0, 1, 9, 3, 18, 30, 8, 2, 0, 60, 1, 0, 0)
"""Bytes that follow two others. Buckets of rate 0 are never filled again, so colours do not depend on the clock; those
of the largest rate are full for each frame."""


def _indirect_colors() -> list[Step]:
    """Cell 1 runs dry, red before yellow; 2 has no bursts; 3 marks by size alone; 0 is green until it gets rates."""
    fastest = 10**12

    def frames() -> list[Step]:
        return [Arrive(1, bytes((cell, 9)) + bytes(size)) for size in _SIZES for cell in range(4)]

    def rates(cell: int, config: MeterConfig | None) -> tuple[str, MeterEntry]:
        return "modify", MeterEntry("MainIngress.rate", cell, config)

    return [
        Write((rates(1, MeterConfig(0, 30, 0, 80)), rates(2, MeterConfig(0, 0, 0, 0)))),
        Write((rates(3, MeterConfig(fastest, 10, fastest, 30)),)),
        *frames(),
        Write((rates(0, MeterConfig(0, 50, 0, 10)), rates(1, MeterConfig(0, 30, 0, 80)), rates(2, None))),
        *frames(),
        # BMv2 refuses the first, but has taken half of it over: so no frame comes after it.
        Write((rates(3, MeterConfig(2, 1, 1, 1)), rates(4, None))),
    ]


def _direct_colors() -> list[Step]:
    def metered(*given: int) -> str:
        more = f"meter_config {rates(*given)}"
        return entity_text.entry("MainIngress.keys", exact(1), "action { action_id: @MainIngress.meter_it }", more)

    frames = [Arrive(1, bytes((key, 9)) + bytes(size)) for size in _SIZES for key in (1, 2)]
    return [
        insert(metered(0, 30, 0, 80), entry("keys", {"key": 2}, "meter_it")),
        *frames,
        modify(metered(0, 70, 0, 70)),
        *frames,
    ]


def _operands() -> list[Arrive]:
    """Two 2048-bit numbers for each of the four operations, a few times."""
    source = random.Random("operands")
    return [Arrive(1, bytes((operation,)) + some_bytes(source, 512)) for operation in range(4) for _ in range(3)]


def _signed(a: int, b: int) -> Arrive:
    return Arrive(1, bytes((a, b, 0, 0, a, b, 0, 0)))


def _shift(by: int, value: int) -> Arrive:
    return Arrive(1, bytes((by,)) + value.to_bytes(2, "big") * 4)


def _logic() -> list[Arrive]:
    return [Arrive(1, bytes((a, b, 0))) for a in (0, 1, 10, 11, 200) for b in (0, 3, 4, 5, 8, 9, 10)]

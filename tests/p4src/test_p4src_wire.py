"""The worker's wire constants are the P4 header's."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from p4reduce_contracts import wire

P4SRC = Path(__file__).resolve().parents[2] / "p4src"
WIRE_P4 = (P4SRC / "shared/wire.p4").read_text()
CONSTANTS = {
    name: int(value, 0)
    for name, value in re.findall(r"const bit<\d+> (\w+) = (0x[0-9A-Fa-f]+|\d+);", WIRE_P4)
}
BASE_FIELDS = re.search(r"header base_t \{(.*?)\n\}", WIRE_P4, re.DOTALL)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AGGREGATION_PORT", wire.AGGREGATION_PORT),
        ("WIRE_VERSION", wire.WIRE_VERSION),
        ("TYPE_CONTRIBUTE", wire.CONTRIBUTE),
        ("TYPE_RESULT", wire.RESULT),
        ("TYPE_PENDING", wire.PENDING),
        ("TYPE_HELLO", wire.HELLO),
        ("KEY_NONE", wire.KEY_NONE),
        ("BASE_BYTES", wire.BASE_BYTES),
        ("HELLO_BYTES", wire.NONCE_BYTES),
    ],
)
def test_constant(name: str, value: int) -> None:
    assert value == CONSTANTS[name]


def test_header_bytes_on_the_wire() -> None:
    assert (
        CONSTANTS["ETHERNET_BYTES"] + CONSTANTS["IPV4_BYTES"] + CONSTANTS["UDP_BYTES"] == wire.ENCAP_BYTES
    )


@pytest.mark.parametrize(("name", "geometry"), [("default", wire.DEFAULT), ("small", wire.SMALL)])
def test_geometry(name: str, geometry: wire.Geometry) -> None:
    shape = tomllib.loads((P4SRC / "artifacts" / "v1model" / name / "geometry.toml").read_text())
    assert (geometry.columns, geometry.block_words) == (shape["columns"], shape["block_words"])


def test_base_header_layout() -> None:
    """Each field of a packed frame lies where the P4 header puts it."""
    assert BASE_FIELDS is not None
    fields = [(name, int(bits)) for bits, name in re.findall(r"bit<(\d+)>\s+(\w+);", BASE_FIELDS[1])]
    assert sum(bits for _, bits in fields) == 8 * CONSTANTS["BASE_BYTES"]
    values = {
        "version": CONSTANTS["WIRE_VERSION"], "type": CONSTANTS["TYPE_CONTRIBUTE"], "job": 0xA1, "present": 0b0110,
        "reserved": 0, "epoch": 0xB2B3, "slot": 0xC4C5, "round": 0xD6D7D8D9, "seen": 0,
    }  # fmt: skip
    number = 0
    for name, bits in fields:
        number = number << bits | values[name]
    keys = (0x01020304, 0x05060708, 0x090A0B0C, 0x0D0E0F10)
    blocks = bytes(range(64))
    frame = wire.Frame(
        values["type"],
        values["job"],
        values["present"],
        values["epoch"],
        values["slot"],
        values["round"],
        0,
        keys,
        blocks,
    )
    expected = number.to_bytes(16, "big") + b"".join(key.to_bytes(4, "big") for key in keys) + blocks
    assert wire.pack(wire.SMALL, frame) == expected


def test_hello_layout() -> None:
    base = CONSTANTS["WIRE_VERSION"] << 124 | CONSTANTS["TYPE_HELLO"] << 120 | 0x77 << 112
    assert wire.pack_hello(0x77, 0x0102030405060708) == base.to_bytes(16, "big") + bytes(range(1, 9))


def test_drop_reasons_have_the_names_the_controller_prints() -> None:
    reasons = {
        value: name.removeprefix("DROP_") for name, value in CONSTANTS.items() if name.startswith("DROP_")
    }
    assert reasons.pop(0) == "NONE"
    assert reasons.pop(CONSTANTS["DROP_REASONS"]) == "REASONS"
    assert reasons == wire.DROP_REASONS

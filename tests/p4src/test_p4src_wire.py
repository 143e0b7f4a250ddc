"""The worker's wire constants are the P4 header's."""

from __future__ import annotations

import tomllib

import pytest

from p4reduce_runtime.underlay import ENCAP_BYTES
from rigs import wire
from rigs.p4src import P4SRC, WIRE_P4

CONSTANTS = WIRE_P4.constants


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AGGREGATION_PORT", wire.AGGREGATION_PORT),
        ("WIRE_VERSION", wire.WIRE_VERSION),
        ("KEY_NONE", wire.KEY_NONE),
        ("BASE_BYTES", wire.BASE_BYTES),
        ("GUARD_BYTES", wire.GUARD_BYTES),
        ("NONCE_BYTES", wire.NONCE_BYTES),
    ],
)
def test_constant(name: str, value: int) -> None:
    assert value == CONSTANTS[name]


def test_frame_types_have_their_names() -> None:
    assert {number: name for name, number in WIRE_P4.enums["FrameType"].items()} == wire.TYPE_NAMES


def test_header_bytes_on_the_wire() -> None:
    assert CONSTANTS["ETHERNET_BYTES"] + CONSTANTS["IPV4_BYTES"] + CONSTANTS["UDP_BYTES"] == ENCAP_BYTES


@pytest.mark.parametrize(("name", "geometry"), [("default", wire.DEFAULT), ("small", wire.SMALL)])
def test_geometry(name: str, geometry: wire.Geometry) -> None:
    shape = tomllib.loads((P4SRC / "artifacts" / "v1model" / name / "geometry.toml").read_text())
    assert (geometry.columns, geometry.block_words) == (shape["columns"], shape["block_words"])


def test_header_layout() -> None:
    """Each field of a packed frame lies where the P4 headers put it."""
    base, guard = WIRE_P4.fields("base_t"), WIRE_P4.fields("guard_t")
    assert sum(bits for _, bits in base) == 8 * CONSTANTS["BASE_BYTES"]
    assert sum(bits for _, bits in guard) == 8 * CONSTANTS["GUARD_BYTES"]
    fields = [*base, *(("unused" if name == "reserved" else name, bits) for name, bits in guard)]
    values = {
        "version": CONSTANTS["WIRE_VERSION"], "type": wire.CONTRIBUTE, "job": 0xA1, "present": 0b0110,
        "level": 0, "epoch": 0xB2B3, "slot": 0xC4C5, "round": 0xD6D7D8D9, "seen": 0,
        "secret": 0x1112131415161718, "check": 0x21222324, "unused": 0,
    }  # fmt: skip
    keys = (0x01020304, 0x05060708, 0x090A0B0C, 0x0D0E0F10)
    blocks = bytes(range(64))
    named = ("type", "job", "present", "epoch", "slot", "round", "seen", "secret", "check")
    frame = wire.Frame(**{name: values[name] for name in named}, keys=keys, blocks=blocks)
    packed = wire.pack(wire.SMALL, frame)
    values["checksum"] = wire.header_checksum(wire.SMALL, packed)
    number = 0
    for name, bits in fields:
        number = number << bits | values[name]
    assert packed == number.to_bytes(32, "big") + b"".join(key.to_bytes(4, "big") for key in keys) + blocks


def test_hello_layout() -> None:
    base = CONSTANTS["WIRE_VERSION"] << 124 | wire.HELLO << 120 | 0x77 << 112
    assert wire.pack_hello(0x77, 0x0102030405060708) == base.to_bytes(16, "big") + bytes(range(1, 9))


def test_drop_reasons_have_the_names_the_controller_prints() -> None:
    reasons = {number: name for name, number in WIRE_P4.enums["Drop"].items()}
    assert reasons.pop(0) == "NONE"
    assert reasons == wire.DROP_REASONS
    assert CONSTANTS["DROP_REASONS"] == len(reasons) + 1

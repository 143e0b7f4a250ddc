"""Packing and parsing frames."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.utils import checksum

from p4reduce.errors import FrameError, GeometryMismatchError
from p4reduce_contracts.wire.frames import Frame, key_of, pack, unpack
from p4reduce_contracts.wire.geometry import DEFAULT, SMALL, Geometry
from p4reduce_contracts.wire.numbers import KEY_NONE
from p4reduce_runtime.underlay import is_hello
from rigs import wire


@st.composite
def frames(draw: st.DrawFn) -> tuple[Geometry, Frame]:
    geometry = Geometry(draw(st.integers(1, 8)), draw(st.sampled_from([4, 8, 32, 64])))
    present = draw(st.integers(0, (1 << geometry.columns) - 1))
    u16, u32 = st.integers(0, 0xFFFF), st.integers(0, 0xFFFFFFFF)
    size = geometry.block_bytes * present.bit_count()
    keys = tuple(draw(st.lists(u32, min_size=geometry.columns, max_size=geometry.columns)))
    kind = draw(st.sampled_from([wire.CONTRIBUTE, wire.RESULT, wire.PENDING]))
    data = draw(st.binary(min_size=size, max_size=size))
    job = draw(st.integers(0, 255))
    secret = draw(st.integers(0, (1 << wire.SECRET_BITS) - 1))
    numbers = draw(u16), draw(u16), draw(u32), draw(u32), secret, draw(u32)
    return geometry, Frame(kind, job, present, *numbers, keys, data)


@given(frames())
def test_unpack_undoes_pack(case: tuple[Geometry, Frame]) -> None:
    geometry, frame = case
    assert unpack(geometry, pack(geometry, frame)) == frame


def test_the_bytes_of_a_frame() -> None:
    keys = (key_of(5, 127), KEY_NONE, 0, 1)
    secret, check = 0x1122334455667788, 0xAABBCCDD
    frame = Frame(wire.CONTRIBUTE, 7, 0b0100, 0x1234, 0xBEEF, 0x01020304, 0, secret, check, keys, bytes(range(32)))
    base, spelled_keys = "21070400" + "1234beef" + "01020304" + "00000000", "00000580" + "ffffffff" + "0000000000000001"
    of_headers = checksum(bytes.fromhex(base + "aabbccdd" + spelled_keys))
    expected = base + "1122334455667788" + "aabbccdd" + f"{of_headers:04x}" + "0000" + spelled_keys
    assert pack(SMALL, frame).hex() == expected + bytes(range(32)).hex()


def good() -> bytes:
    return pack(SMALL, Frame(wire.RESULT, 1, 1, 2, 3, 4, 5, 6, 7, (KEY_NONE,) * 4, bytes(32)))


def test_unpack_gives_the_reason() -> None:
    faults = {
        "TRUNCATED": good()[:47],
        "LENGTH": good() + b"\0",
        "VERSION": b"\x12" + good()[1:],
        "TYPE": b"\x24" + good()[1:],
        "RESERVED": good()[:30] + b"\1" + good()[31:],
        "HEADER_CHECKSUM": good()[:28] + bytes((good()[28] ^ 1,)) + good()[29:],
    }
    assert set(faults) == set(wire.FRAME_FAULTS)
    for reason, payload in faults.items():
        with pytest.raises(FrameError) as caught:
            unpack(SMALL, payload)
        assert caught.value.reason == reason


def test_a_level_is_for_answers_only() -> None:
    answer = Frame(wire.RESULT, 1, 1, 2, 3, 4, 5, 6, 7, (KEY_NONE,) * 4, bytes(32), level=9)
    for kind in (wire.RESULT, wire.PENDING):
        packed = pack(SMALL, answer._replace(type=kind))
        assert packed[3] == 9
        assert unpack(SMALL, packed) == answer._replace(type=kind)
    with pytest.raises(FrameError, match="a CONTRIBUTE's level 9") as caught:
        unpack(SMALL, pack(SMALL, answer._replace(type=wire.CONTRIBUTE)))
    assert caught.value.reason == "RESERVED"


def test_present_beyond_the_columns_is_a_length_fault() -> None:
    payload = bytearray(good())
    payload[2] = 0x10  # one block, but of column 4 of 4
    with pytest.raises(FrameError) as caught:
        unpack(SMALL, bytes(payload))
    assert caught.value.reason == "LENGTH"


def test_pack_refuses_frames_that_do_not_add_up() -> None:
    frame = Frame(wire.RESULT, 1, 1, 2, 3, 4, 5, 6, 7, (KEY_NONE,) * 4, bytes(32))
    for wrong in (frame._replace(keys=()), frame._replace(present=3), frame._replace(present=16)):
        with pytest.raises(FrameError):
            pack(SMALL, wrong)


def test_hello() -> None:
    payload = wire.pack_hello(9, 0x0123456789ABCDEF)
    assert payload.hex() == "24090000" + "00" * 12 + "0123456789abcdef"
    assert wire.unpack_hello(payload) == (9, 0x0123456789ABCDEF)
    assert is_hello(payload)
    for broken in (payload[:-1], payload + b"\0", payload[:8] + b"\1" + payload[9:], b"\x14" + payload[1:], b""):
        with pytest.raises(FrameError):
            wire.unpack_hello(broken)
        assert not is_hello(broken)


def test_smallest_block_wins_and_then_the_largest_exponent() -> None:
    assert min(key_of(3, 10), key_of(3, 200), key_of(4, 254)) == key_of(3, 200)
    assert key_of(wire.MAX_BLOCKS - 1, 0) < KEY_NONE


@pytest.mark.parametrize(("columns", "block_words"), [(0, 32), (9, 32), (8, 0), (8, 30)])
def test_impossible_geometries_are_refused(columns: int, block_words: int) -> None:
    with pytest.raises(GeometryMismatchError):
        Geometry(columns, block_words)


def test_default_geometry_fits_an_ethernet_frame() -> None:
    assert DEFAULT.max_frame_bytes + 28 <= 1500

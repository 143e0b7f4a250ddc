"""The Internet checksum, compared with scapy's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from scapy.utils import checksum

from p4reduce_contracts.wire.checksum import internet_checksum


@given(st.binary(max_size=80))
def test_the_checksum_equals_scapys(data: bytes) -> None:
    assert internet_checksum(data) == checksum(data)


@given(st.binary(max_size=80).filter(any))
def test_the_checksum_is_zero_where_the_sum_is_all_ones(data: bytes) -> None:
    padded = data + bytes(len(data) % 2)
    all_ones = padded + internet_checksum(padded).to_bytes(2, "big")
    assert internet_checksum(all_ones) == checksum(all_ones) == 0


def test_the_checksum_of_zero_bytes_is_ffff() -> None:
    for length in range(9):
        assert internet_checksum(bytes(length)) == checksum(bytes(length)) == 0xFFFF

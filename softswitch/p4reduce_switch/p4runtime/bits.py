"""Byte strings in requests, checked; values in answers, canonical (spec, "Bytestrings")."""

from __future__ import annotations

from p4reduce_contracts.p4runtime.bytestrings import decode, encode
from p4reduce_contracts.p4runtime.schema import FieldInfo
from p4reduce_switch.p4runtime.status import Code, Refused


def value_of(data: bytes, field: FieldInfo) -> int:
    """The integer in a request's byte string; leading zeros are allowed, OUT_OF_RANGE when empty or too large.

    UNIMPLEMENTED for a field whose type P4Runtime translates to strings.
    """
    check_sized(field)
    if not data:
        raise Refused(Code.OUT_OF_RANGE, f"{field.name}: an empty byte string is not a value")
    value = decode(data)
    if value >> field.bitwidth:
        raise Refused(Code.OUT_OF_RANGE, f"{field.name}: {value} does not fit {field.bitwidth} bits")
    return value


def data_of(value: int, field: FieldInfo) -> bytes:
    """The canonical byte string of a value; UNIMPLEMENTED as for `value_of`."""
    check_sized(field)
    return encode(value, field.bitwidth)


def check_sized(field: FieldInfo) -> None:
    """UNIMPLEMENTED for a field whose type P4Runtime translates to strings: nothing here knows which value is which."""
    if not field.bitwidth:
        raise Refused(Code.UNIMPLEMENTED, f"{field.name}: values that are translated to strings are not supported")

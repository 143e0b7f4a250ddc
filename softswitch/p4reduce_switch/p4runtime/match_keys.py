"""Match keys of table entries and value sets, from requests and into answers (spec, "Match Format")."""

from __future__ import annotations

from typing import Any

from p4reduce_contracts.p4runtime.schema import FieldInfo
from p4reduce_switch.p4runtime.bits import data_of, value_of
from p4reduce_switch.p4runtime.status import invalid


def value_of_key(key: FieldInfo, field: Any, where: str) -> Any:
    """Return the value of one key of a request, in P4Info's kind; `field` is None for a key that was left out."""
    full = (1 << key.bitwidth) - 1
    if field is None:
        if key.kind == "exact":
            invalid(f"{where}: the exact key {key.name} is missing")
        return {"lpm": (0, 0), "ternary": (0, 0), "range": (0, full), "optional": None}[key.kind]
    if field.WhichOneof("field_match_type") != key.kind:
        invalid(f"{where}: key {key.name} is {key.kind}")
    if key.kind in ("exact", "optional"):
        return value_of(getattr(field, key.kind).value, key)
    if key.kind == "lpm":
        length, value = field.lpm.prefix_len, value_of(field.lpm.value, key)
        if not 0 < length <= key.bitwidth:
            invalid(
                f"{key.name}: prefix length {length} is not in 1..{key.bitwidth} (leave out a key that matches all)"
            )
        if value & full >> length:
            invalid(f"{key.name}: bits outside the prefix are set")
        return value, length
    if key.kind == "ternary":
        value, mask = value_of(field.ternary.value, key), value_of(field.ternary.mask, key)
        if not mask:
            invalid(f"{key.name}: the mask is 0 (leave out a key that matches all)")
        if value & ~mask:
            invalid(f"{key.name}: bits outside the mask are set")
        return value, mask
    low, high = value_of(field.range.low, key), value_of(field.range.high, key)
    if low > high or (low, high) == (0, full):
        invalid(f"{key.name}: the range {low}..{high} is empty or matches all (then leave out the key)")
    return low, high


def put_key(key: FieldInfo, value: Any, out: Any) -> None:
    """Write the value of one key into an answer's `match`; what matches everything is left out."""
    if key.kind == "exact" or (key.kind == "optional" and value is not None):
        getattr(out.match.add(field_id=key.id), key.kind).value = data_of(value, key)
    elif key.kind == "lpm" and value[1]:
        out.match.add(field_id=key.id).lpm.value = data_of(value[0], key)
        out.match[-1].lpm.prefix_len = value[1]
    elif key.kind == "ternary" and value[1]:
        out.match.add(field_id=key.id).ternary.value = data_of(value[0], key)
        out.match[-1].ternary.mask = data_of(value[1], key)
    elif key.kind == "range" and value != (0, (1 << key.bitwidth) - 1):
        out.match.add(field_id=key.id).range.low = data_of(value[0], key)
        out.match[-1].range.high = data_of(value[1], key)

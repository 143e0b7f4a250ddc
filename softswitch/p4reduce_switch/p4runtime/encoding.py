"""Values, match fields, actions and packet metadata: decoded from requests and checked, encoded into answers.

Sections "Bytestrings", "Match Format", "Action Specification" and "Packet I/O" of the P4Runtime specification.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime import bytestrings
from p4reduce_runtime.p4runtime.schema import ActionInfo, Directory, FieldInfo
from p4reduce_switch.p4runtime.status import Code, RequestError, invalid_argument
from p4reduce_switch.program.ir.program import KeyTest
from p4reduce_switch.program.state.profiles import Call

# ---- byte strings


def decode_value(data: bytes, field: FieldInfo) -> int:
    """Return the integer in a request's byte string; leading zeros are allowed.

    OUT_OF_RANGE when it is empty or too large, UNIMPLEMENTED for a field whose type P4Runtime translates to strings.
    """
    check_not_translated(field)
    if not data:
        raise RequestError(Code.OUT_OF_RANGE, f"{field.name}: an empty byte string is not a value")
    value = bytestrings.decode(data)
    if value >> field.bitwidth:
        raise RequestError(Code.OUT_OF_RANGE, f"{field.name}: {value} does not fit {field.bitwidth} bits")
    return value


def encode_value(value: int, field: FieldInfo) -> bytes:
    """Return the canonical byte string of a value; UNIMPLEMENTED as for `decode_value`."""
    check_not_translated(field)
    return bytestrings.encode(value, field.bitwidth)


def check_not_translated(field: FieldInfo) -> None:
    """Raise UNIMPLEMENTED for a field whose type P4Runtime translates to strings: the mapping is not known here."""
    if not field.bitwidth:
        raise RequestError(Code.UNIMPLEMENTED, f"{field.name}: values that are translated to strings are not supported")


# ---- match fields of table entries and value sets


def decode_matches(keys: Sequence[FieldInfo], fields: Sequence[p4r.FieldMatch], where: str) -> tuple[KeyTest, ...]:
    """Return the tests of a request's match fields, one for each key, checked as the spec says ("Match Format").

    Keys that are left out match all.
    """
    given = {field.field_id: field for field in fields}
    if len(given) != len(fields):
        invalid_argument("a key is given twice")
    if unknown := set(given) - {key.id for key in keys}:
        invalid_argument(f"{where} has no key with id {min(unknown)}")
    for key in keys:
        check_not_translated(key)
    return tuple(
        KeyTest.of(key.kind, key.bitwidth, _decode_match(key, given[key.id], where))
        if key.id in given
        else _any_value(key, where)
        for key in keys
    )


def _any_value(key: FieldInfo, where: str) -> KeyTest:
    if key.kind == "exact":
        invalid_argument(f"{where}: the exact key {key.name} is missing")
    return KeyTest(0, 0, 0, (1 << key.bitwidth) - 1)


def _decode_match(key: FieldInfo, field: p4r.FieldMatch, where: str) -> int | tuple[int, int]:
    full = (1 << key.bitwidth) - 1
    if field.WhichOneof("field_match_type") != key.kind:
        invalid_argument(f"{where}: key {key.name} is {key.kind}")
    if key.kind in ("exact", "optional"):
        return decode_value(getattr(field, key.kind).value, key)
    if key.kind == "lpm":
        length, value = field.lpm.prefix_len, decode_value(field.lpm.value, key)
        if not 0 < length <= key.bitwidth:
            invalid_argument(
                f"{key.name}: prefix length {length} is not in 1..{key.bitwidth} (leave out a key that matches all)"
            )
        if value & full >> length:
            invalid_argument(f"{key.name}: bits outside the prefix are set")
        return value, length
    if key.kind == "ternary":
        value, mask = decode_value(field.ternary.value, key), decode_value(field.ternary.mask, key)
        if not mask:
            invalid_argument(f"{key.name}: the mask is 0 (leave out a key that matches all)")
        if value & ~mask:
            invalid_argument(f"{key.name}: bits outside the mask are set")
        return value, mask
    low, high = decode_value(field.range.low, key), decode_value(field.range.high, key)
    if low > high or (low, high) == (0, full):
        invalid_argument(f"{key.name}: the range {low}..{high} is empty or matches all (then leave out the key)")
    return low, high


def encode_matches(
    keys: Sequence[FieldInfo], match: Sequence[KeyTest], out: p4r.TableEntry | p4r.ValueSetMember
) -> None:
    """Add the tests of keys to an answer's `match`; those that match everything are left out."""
    for key, test in zip(keys, match, strict=True):
        if test == KeyTest(0, 0, 0, (1 << key.bitwidth) - 1):
            continue
        field = out.match.add(field_id=key.id)
        if key.kind == "range":
            field.range.low, field.range.high = encode_value(test.low, key), encode_value(test.high, key)
            continue
        getattr(field, key.kind).value = encode_value(test.value, key)
        if key.kind == "lpm":
            field.lpm.prefix_len = test.mask.bit_count()
        elif key.kind == "ternary":
            field.ternary.mask = encode_value(test.mask, key)


# ---- actions


def decode_action(
    request: p4r.Action, actions: Directory[ActionInfo], allowed: Collection[int], excluded: Collection[int], where: str
) -> Call:
    """Return the action that a request's Action names, checked.

    INVALID_ARGUMENT for an action that is not in `allowed`, PERMISSION_DENIED for one of those that is in `excluded`.
    """
    if request.action_id not in allowed:
        invalid_argument(f"{where} has no action with id {request.action_id}")
    action = actions.by_id[request.action_id]
    if action.id in excluded:
        raise RequestError(Code.PERMISSION_DENIED, f"{where} does not allow {action.name} here")
    given = {param.param_id: param.value for param in request.params}
    if len(given) != len(request.params) or set(given) != {param.id for param in action.params}:
        expected = [f"{param.id} ({param.name})" for param in action.params]
        invalid_argument(f"action {action.name} takes exactly the parameters {', '.join(expected) or 'none'}")
    return action.name, tuple(decode_value(given[param.id], param) for param in action.params)


def encode_action(name: str, params: tuple[int, ...], actions: Directory[ActionInfo], out: p4r.Action) -> None:
    """Write an action that P4Info lists into an answer's Action."""
    action = actions[name]
    out.action_id = action.id
    for param, value in zip(action.params, params, strict=True):
        out.params.add(param_id=param.id, value=encode_value(value, param))


# ---- packet-in and packet-out


class PacketHeader:
    """A header of type packet_in or packet_out: its fields one after the other, whole bytes in all.

    The program has it at the front of a frame on the CPU port, P4Runtime as PacketMetadata by id.
    """

    def __init__(self, fields: Sequence[FieldInfo]) -> None:
        self.fields = tuple(fields)
        bits = sum(field.bitwidth for field in fields)
        if bits % 8:
            raise ValueError(f"a controller header has {bits} bits, which are not whole bytes")
        self.length_bytes = bits // 8

    @classmethod
    def of(cls, fields: Sequence[FieldInfo]) -> PacketHeader | None:
        """Return None when the program has no such header."""
        return cls(fields) if fields else None

    def packet_in(self, frame: bytes) -> p4r.PacketIn | None:
        """Return the PacketIn of a frame sent to the CPU port; None when it is shorter than the header."""
        if len(frame) < self.length_bytes:
            return None
        packet = p4r.PacketIn(payload=frame[self.length_bytes :])
        bits = int.from_bytes(frame[: self.length_bytes], "big")
        left = self.length_bytes * 8
        for field in self.fields:
            left -= field.bitwidth
            value = bits >> left & (1 << field.bitwidth) - 1
            packet.metadata.add(metadata_id=field.id, value=encode_value(value, field))
        return packet

    def frame(self, packet: p4r.PacketOut) -> bytes:
        """Return the frame to inject for a PacketOut; INVALID_ARGUMENT unless it has each field exactly once."""
        given = {item.metadata_id: item.value for item in packet.metadata}
        known = {field.id for field in self.fields}
        if len(given) != len(packet.metadata) or not set(given) <= known:
            ids = sorted(item.metadata_id for item in packet.metadata)
            invalid_argument(f"packet-out metadata has unknown or repeated ids {ids}")
        bits = 0
        for field in self.fields:
            if field.id not in given:
                invalid_argument(f"packet-out metadata {field.name} (id {field.id}) is missing")
            bits = bits << field.bitwidth | decode_value(given[field.id], field)
        return bits.to_bytes(self.length_bytes, "big") + bytes(packet.payload)

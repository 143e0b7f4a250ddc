"""A test that p4testgen wrote (`--test-backend PROTOBUF`): table entries, a frame, and what should leave.

The text comes from a program and is untrusted. protobuf's text reader takes it apart: what is read is messages, and
their entities go to switches as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r

MAX_TEXT = 16 << 20
"""Characters of a test."""
MAX_PORT = 511
Outputs = tuple[tuple[int, bytes], ...]
"""(port, frame) of everything that left."""


class BadTestError(ValueError):
    """The text is no test; the message names what is wrong."""


@dataclass(frozen=True)
class Expected:
    """A frame that should leave by a port; bits that are 0 in `mask` may be anything."""

    port: int
    frame: bytes
    mask: bytes

    def matches(self, port: int, frame: bytes) -> bool:
        """Whether this is the frame."""
        return (
            port == self.port
            and len(frame) == len(self.frame)
            and all((a ^ b) & m == 0 for a, b, m in zip(frame, self.frame, self.mask, strict=True))
        )


@dataclass(frozen=True)
class GeneratedTest:
    """Entities (p4.v1.Entity) to insert, a frame, and what should leave (nothing if `expected` is empty)."""

    port: int
    frame: bytes
    expected: tuple[Expected, ...]
    entities: tuple[Any, ...] = ()

    def passes(self, outputs: Outputs) -> bool:
        """Whether exactly the expected frames left, in order."""
        return len(outputs) == len(self.expected) and all(
            expected.matches(*output) for expected, output in zip(self.expected, outputs, strict=True)
        )


def _test_case() -> Any:
    """The message p4testgen.TestCase, as the proto file beside p4testgen's sources declares it."""
    file = descriptor_pb2.FileDescriptorProto(name="p4testgen.proto", package="p4testgen", syntax="proto3")
    file.dependency.append(p4r.Entity.DESCRIPTOR.file.name)
    kind = descriptor_pb2.FieldDescriptorProto
    declared: dict[str, tuple[tuple[str, int, str, bool], ...]] = {
        "InputPacketAtPort": (("packet", kind.TYPE_BYTES, "", False), ("port", kind.TYPE_INT32, "", False)),
        "OutputPacketAtPort": (
            ("packet", kind.TYPE_BYTES, "", False),
            ("port", kind.TYPE_INT32, "", False),
            ("packet_mask", kind.TYPE_BYTES, "", False),
        ),
        "TestCase": (
            ("input_packet", kind.TYPE_MESSAGE, ".p4testgen.InputPacketAtPort", False),
            ("expected_output_packet", kind.TYPE_MESSAGE, ".p4testgen.OutputPacketAtPort", True),
            ("entities", kind.TYPE_MESSAGE, ".p4.v1.Entity", True),
            ("traces", kind.TYPE_STRING, "", True),
            ("metadata", kind.TYPE_STRING, "", True),
        ),
    }
    for name, fields in declared.items():
        message = file.message_type.add(name=name)
        for number, (field, type_, type_name, repeated) in enumerate(fields, 1):
            label = kind.LABEL_REPEATED if repeated else kind.LABEL_OPTIONAL
            message.field.add(name=field, number=number, type=type_, type_name=type_name or None, label=label)
    pool = descriptor_pool.Default()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p4testgen.TestCase"))


TestCase: Any = _test_case()


def read(text: str) -> GeneratedTest:
    """Take a test apart. Raises BadTestError for a text that is none."""
    if len(text) > MAX_TEXT:
        raise BadTestError(f"the test has more than {MAX_TEXT} characters")
    try:
        found = text_format.Parse(_without_traces(text), TestCase())
    except (text_format.ParseError, RecursionError, ValueError) as error:
        raise BadTestError(f"the test is not a p4testgen.TestCase: {error}") from error
    if not found.HasField("input_packet"):
        raise BadTestError("the test has no input packet")
    expected = []
    for packet in found.expected_output_packet:
        mask = packet.packet_mask or bytes([255]) * len(packet.packet)
        if len(mask) != len(packet.packet):
            raise BadTestError("a mask is not as long as its packet")
        expected.append(Expected(_port(packet.port), packet.packet, mask))
    source = found.input_packet
    return GeneratedTest(_port(source.port), source.packet, tuple(expected), tuple(found.entities))


def corrected(test: GeneratedTest, p4info: Any) -> GeneratedTest:
    """Return the test with entries that mean the same and keep to P4Runtime's rules, which p4testgen does not.

    A key that matches all is left out, bits that do not count are 0, an optional key is not a ternary one, an action of
    a set has a weight, and where a table has a profile without selector, its entries refer to members. `p4info` is the
    program's.
    """
    tables = {table.preamble.id: table for table in p4info.tables}
    plain = {profile.preamble.id for profile in p4info.action_profiles if not profile.with_selector}
    entities: list[Any] = []
    for entity in test.entities:
        if entity.WhichOneof("entity") != "table_entry" or entity.table_entry.table_id not in tables:
            entities.append(entity)
            continue
        table = tables[entity.table_entry.table_id]
        entry = type(entity)()
        entry.CopyFrom(entity)
        _correct_matches(entry.table_entry, {key.id: key for key in table.match_fields})
        action = entry.table_entry.action
        for weighted in list(action.action_profile_action_set.action_profile_actions):
            weighted.weight = weighted.weight or 1
            if table.implementation_id in plain:
                member = type(entity)()
                member.action_profile_member.action_profile_id = table.implementation_id
                member.action_profile_member.member_id = len(entities) + 1
                member.action_profile_member.action.CopyFrom(weighted.action)
                action.action_profile_member_id = len(entities) + 1
                entities.append(member)
        entities.append(entry)
    return replace(test, entities=tuple(entities))


def _correct_matches(entry: Any, keys: Mapping[int, Any]) -> None:
    given = list(entry.match)
    del entry.match[:]
    entry.match.extend(match for found in given for match in _corrected_match(found, keys.get(found.field_id)))


def _corrected_match(given: Any, key: Any) -> Iterator[Any]:
    """The match of a key, unless it matches all; `key` is its P4Info entry, None for an unknown one."""
    all_ones = (1 << (0 if key is None else key.bitwidth)) - 1
    match = type(given)()
    match.CopyFrom(given)
    matches_all = False
    kind = match.WhichOneof("field_match_type")
    if kind == "lpm":
        matches_all = match.lpm.prefix_len == 0
        match.lpm.value = _masked(match.lpm.value, all_ones ^ (all_ones >> match.lpm.prefix_len))
    elif kind == "ternary":
        mask = _number(match.ternary.mask)
        matches_all = mask == 0
        match.ternary.value = _masked(match.ternary.value, mask)
        if key is not None and key.match_type == key.OPTIONAL and mask == all_ones:
            match.optional.value = given.ternary.value
    elif kind == "range":
        matches_all = not any(match.range.low) and _number(match.range.high) == all_ones
    if not matches_all:
        yield match


def _masked(value: bytes, mask: int) -> bytes:
    return (_number(value) & mask).to_bytes(len(value), "big")


def _number(value: bytes) -> int:
    return int.from_bytes(value, "big")


def _without_traces(text: str) -> str:
    """The text without p4testgen's trace of the program: quotes in it are not escaped."""
    return "\n".join(line for line in text.split("\n") if not line.startswith(("traces:", "metadata:")))


def _port(port: int) -> int:
    if not 0 <= port <= MAX_PORT:
        raise BadTestError(f"port {port} is outside 0..{MAX_PORT}")
    return port

"""The reader of p4testgen's tests: what it reads, and the errors about anything else."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import text_format

from conformance.case import PROGRAMS
from fidelity.generated import BadTestError, GeneratedTest, corrected, read
from p4reduce_runtime.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_runtime.p4runtime.schema import parse_p4info

TEXT = r"""
# proto-file: p4testgen.proto
# proto-message: TestCase
# A P4TestGen-generated test case for some.p4
metadata: "p4testgen seed: 1"
traces: '[State] start'
traces: 'a quote ' and a brace { in what it tells'

input_packet {
  packet: "\x01\x02\x03"
  port: 4
}

expected_output_packet {
  packet: "\x0A\x0B"
  port: 5
  packet_mask: "\xFF\xF0"
}

# Table ingress.t
entities {
  table_entry {
    table_id: 7
    priority: 3
    match {
      field_id: 1
      ternary {
        value: "\x01"
        mask: "\x0F"
      }
    }
    action {
      action {
        action_id: 9
        params {
          param_id: 1
          value: "\x00\x05"
        }
      }
    }
  }
}
"""


def test_every_part_of_a_generated_test_is_read() -> None:
    test = read(TEXT)
    assert (test.port, test.frame) == (4, b"\x01\x02\x03")
    (expected,) = test.expected
    assert (expected.port, expected.frame, expected.mask) == (5, b"\x0a\x0b", b"\xff\xf0")
    (entity,) = test.entities
    assert entity.table_entry.table_id == 7 and entity.table_entry.priority == 3
    assert entity.table_entry.match[0].ternary.mask == b"\x0f"
    assert entity.table_entry.action.action.params[0].value == b"\x00\x05"


def matches(program: str, keys: str) -> list[Any]:
    """The matches of an entry of a program's first table, corrected; `keys` is what p4testgen writes of them."""
    p4info = parse_p4info((PROGRAMS / f"{program}.p4info.txtpb").read_text())
    entity = p4r.Entity()
    text_format.Parse(keys, entity.table_entry)
    entity.table_entry.table_id = p4info.tables[0].preamble.id
    (found,) = corrected(GeneratedTest(1, b"a", (), (entity,)), p4info).entities
    return list(found.table_entry.match)


def test_matches_are_made_canonical_for_p4runtime() -> None:
    assert not matches("lpm", r'match { field_id: 1 lpm { value: "\000\000\000\000" } }')
    (prefix,) = matches("lpm", r'match { field_id: 1 lpm { value: "\xFF\xFF\xFF\xFF" prefix_len: 10 } }')
    assert (prefix.lpm.value, prefix.lpm.prefix_len) == (b"\xff\xc0\0\0", 10)
    wildcard = r'match { field_id: 1 ternary { value: "\x12\x34" mask: "\x00\x00" } }'
    (masked,) = matches("ternary_priority", wildcard + r'match { field_id: 2 ternary { value: "\xFF" mask: "\x0F" } }')
    assert (masked.field_id, masked.ternary.value) == (2, b"\x0f")
    limits = r'match {{ field_id: 1 range {{ low: "\x00\x00" high: "{}" }} }}'
    assert not matches("range_key", limits.format(r"\xFF\xFF"))
    (low,) = matches("range_key", limits.format(r"\xFF\xFE"))
    assert low.range.high == b"\xff\xfe"
    optional = r'match { field_id: 1 ternary { value: "\x07" mask: "\xFF" } }'
    (found,) = matches("optional_key", optional)
    assert found.optional.value == b"\x07"


@pytest.mark.parametrize(("program", "profile"), [("action_profile", True), ("action_selector", False)])
def test_an_action_set_becomes_a_member_or_gets_a_weight(program: str, profile: bool) -> None:
    p4info = parse_p4info((PROGRAMS / f"{program}.p4info.txtpb").read_text())
    entity = p4r.Entity()
    entity.table_entry.table_id = p4info.tables[0].preamble.id
    entity.table_entry.action.action_profile_action_set.action_profile_actions.add().action.action_id = 5
    *members, entry = corrected(GeneratedTest(1, b"a", (), (entity,)), p4info).entities
    action = entry.table_entry.action
    if profile:
        (member,) = members
        assert member.action_profile_member.action.action_id == 5
        assert member.action_profile_member.action_profile_id == p4info.action_profiles[0].preamble.id
        assert action.action_profile_member_id == member.action_profile_member.member_id
    else:
        (weighted,) = action.action_profile_action_set.action_profile_actions
        assert not members and weighted.weight == 1


def test_bits_outside_the_mask_may_be_anything() -> None:
    test = read(TEXT)
    assert test.passes(((5, b"\x0a\x0b"),)) and test.passes(((5, b"\x0a\x0c"),))
    for outputs in (
        (),
        ((6, b"\x0a\x0b"),),
        ((5, b"\x0a\x1b"),),
        ((5, b"\x0b\x0b"),),
        ((5, b"\x0a\x0b\x00"),),
        ((5, b"\x0a\x0b"), (5, b"\x0a\x0b")),
    ):
        assert not test.passes(outputs), outputs
    whole = read('input_packet { packet: "a" } expected_output_packet { packet: "ab" port: 1 }')
    assert whole.passes(((1, b"ab"),)) and not whole.passes(((1, b"ac"),))
    nothing = read('input_packet { packet: "a" port: 0 }')
    assert nothing.passes(()) and not nothing.passes(((0, b"a"),))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no input packet"),
        ("entities {", "not a p4testgen.TestCase"),
        ("import os", "not a p4testgen.TestCase"),
        ('input_packet { packet: "a" port: 512 }', "outside 0..511"),
        ('input_packet { packet: "a" port: -1 }', "outside 0..511"),
        ('input_packet { packet: "a" } expected_output_packet { packet: "ab" packet_mask: "a" }', "as long as"),
        ('input_packet { packet: "a" } other: 1', "not a p4testgen.TestCase"),
        ('input_packet { packet: "a" } entities { table_entry { table_id: 1 entities { } } }', "no field named"),
        ('input_packet { packet: "\\xZZ" }', "not a p4testgen.TestCase"),
        ("entities { " * 5000, "not a p4testgen.TestCase"),
        (" " * ((16 << 20) + 1), "more than"),
    ],
)
def test_text_that_is_not_a_test_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadTestError, match=why):
        read(text)

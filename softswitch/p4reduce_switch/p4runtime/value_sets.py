"""Parser value sets: all members of a set are written at once. BMv2's P4Runtime server does not have them."""

from __future__ import annotations

from typing import Any

from p4reduce_contracts.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_contracts.p4runtime.schema import ValueSetInfo
from p4reduce_switch.p4runtime.cells import check_modify
from p4reduce_switch.p4runtime.match_keys import put_key, value_of_key
from p4reduce_switch.p4runtime.pipeline import Pipeline
from p4reduce_switch.p4runtime.status import Code, Refused, invalid
from p4reduce_switch.program import KeyTest, ValueSet


def write(pipeline: Pipeline, operation: int, request: Any) -> None:
    """Set the members of a value set, in place of those that it had."""
    info, value_set = _find(pipeline, request.value_set_id)
    check_modify(operation, "value set")
    members = [_member_of(info, member) for member in request.members]
    if len(set(members)) < len(members):
        raise Refused(Code.ALREADY_EXISTS, f"a member of value set {info.name} is given twice")
    if len(members) > info.size:
        raise Refused(Code.RESOURCE_EXHAUSTED, f"value set {info.name} holds {info.size} members, not {len(members)}")
    value_set.set_members(members)


def read(pipeline: Pipeline, query: Any) -> list[Any]:
    """The members of one value set, or of all."""
    wanted = [_find(pipeline, query.value_set_id)] if query.value_set_id else pipeline.value_sets.values()
    return [_entity(info, value_set) for info, value_set in wanted]


def _find(pipeline: Pipeline, id: int) -> tuple[ValueSetInfo, ValueSet]:
    if id not in pipeline.value_sets:
        invalid(f"the program has no value set with id {id}")
    return pipeline.value_sets[id]


def _member_of(info: ValueSetInfo, request: Any) -> tuple[KeyTest, ...]:
    given = {field.field_id: field for field in request.match}
    if len(given) != len(request.match) or set(given) - {key.id for key in info.keys}:
        invalid(f"a member of value set {info.name} has a key twice, or one that the set has not")
    tests = []
    for key in info.keys:
        value = value_of_key(key, given.get(key.id), f"value set {info.name}")
        full = (1 << key.bitwidth) - 1
        match key.kind:
            case "exact":
                tests.append(KeyTest(full, value, 0, full))
            case "lpm":
                tests.append(KeyTest(full ^ (full >> value[1]), value[0], 0, full))
            case "ternary":
                tests.append(KeyTest(value[1], value[0], 0, full))
            case "range":
                tests.append(KeyTest(0, 0, *value))
            case _:
                tests.append(KeyTest(0, 0, 0, full) if value is None else KeyTest(full, value, 0, full))
    return tuple(tests)


def _entity(info: ValueSetInfo, value_set: ValueSet) -> Any:
    entity = p4r.Entity()
    out = entity.value_set_entry
    out.value_set_id = info.id
    for member in value_set.members:
        added = out.members.add()
        for key, test in zip(info.keys, member, strict=True):
            match key.kind:
                case "lpm":
                    value: Any = (test.value, test.mask.bit_count())
                case "ternary":
                    value = (test.value, test.mask)
                case "range":
                    value = (test.low, test.high)
                case _:
                    value = test.value if test.mask else None
            put_key(key, value, added)
    return entity

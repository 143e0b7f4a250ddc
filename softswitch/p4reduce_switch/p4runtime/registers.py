"""Registers: cells that controllers read and write. BMv2's P4Runtime server does not have them."""

from __future__ import annotations

from typing import Any

from p4reduce_contracts.p4.v1 import p4runtime_pb2 as p4r
from p4reduce_contracts.p4runtime import codec
from p4reduce_contracts.p4runtime.errors import SchemaError
from p4reduce_contracts.p4runtime.schema import RegisterInfo
from p4reduce_switch.p4runtime.cells import check_modify, indices
from p4reduce_switch.p4runtime.pipeline import Pipeline
from p4reduce_switch.p4runtime.status import Code, Refused, invalid
from p4reduce_switch.program import Register


def write(pipeline: Pipeline, operation: int, request: Any) -> None:
    """Set one cell of a register, or all when the index is left out."""
    info, register = _find(pipeline, request.register_id)
    check_modify(operation, "register")
    named = indices(request, f"register {info.name}", register.size)
    try:
        value = codec.decode_cell(info, request.data)
    except SchemaError as error:
        invalid(str(error))
    for index in named:
        register.write(index, value & (1 << info.bitwidth) - 1)


def read(pipeline: Pipeline, query: Any) -> list[Any]:
    """One cell, all cells of a register, or those of all registers that P4Runtime can show."""
    if query.register_id:
        wanted = [_find(pipeline, query.register_id)]
    else:
        wanted = [(info, register) for info, register in pipeline.registers.values() if info.kind]
    return [
        _entity(info, register, index)
        for info, register in wanted
        for index in indices(query, f"register {info.name}", register.size)
    ]


def _find(pipeline: Pipeline, id: int) -> tuple[RegisterInfo, Register]:
    if id not in pipeline.registers:
        invalid(f"the program has no register with id {id}")
    info, register = pipeline.registers[id]
    if not info.kind:
        raise Refused(Code.UNIMPLEMENTED, f"the cells of register {info.name} are of a type that is not one number")
    return info, register


def _entity(info: RegisterInfo, register: Register, index: int) -> Any:
    entity = p4r.Entity()
    entity.register_entry.register_id = info.id
    entity.register_entry.index.index = index
    value = register.read(index)
    if info.kind == "int" and value >> info.bitwidth - 1:
        value -= 1 << info.bitwidth
    codec.encode_cell(info, value, entity.register_entry.data)
    return entity

"""The emitters of one function, assembled."""

from __future__ import annotations

from dataclasses import dataclass

from p4reduce_switch.program.ir.program import Program
from p4reduce_switch.program.layout import Layout
from p4reduce_switch.program.llvm.codegen_context import CodegenContext
from p4reduce_switch.program.llvm.emitter import Emitter, Value
from p4reduce_switch.program.llvm.expressions import Expressions
from p4reduce_switch.program.llvm.helpers import Helpers
from p4reduce_switch.program.llvm.host_abi import HostAbi
from p4reduce_switch.program.llvm.numbers import Numbers
from p4reduce_switch.program.llvm.packet_state import PacketState
from p4reduce_switch.program.llvm.statements import Actions, Statements
from p4reduce_switch.program.memory import StateOffsets


@dataclass(frozen=True)
class Emitters:
    """The emitters of one function."""

    e: Emitter
    n: Numbers
    packet: PacketState
    context: CodegenContext
    x: Expressions
    statements: Statements
    actions: Actions


def emitters_of(
    emitter: Emitter,
    helpers: Helpers,
    program: Program,
    layout: Layout,
    offsets: StateOffsets,
    state: Value,
    record: Value,
    failed: Value,
    host_abi: HostAbi,
) -> Emitters:
    """Return all emitters for a packet whose record is at `record`."""
    numbers = Numbers(emitter, helpers)
    packet_state = PacketState(emitter, numbers, layout, record)
    context = CodegenContext(emitter, numbers, packet_state, program, offsets, state, failed, host_abi)
    expressions = Expressions(emitter, numbers, packet_state, context)
    statements = Statements(expressions, context)
    return Emitters(emitter, numbers, packet_state, context, expressions, statements, Actions(statements))

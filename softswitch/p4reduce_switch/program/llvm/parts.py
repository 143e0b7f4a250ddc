"""The writers of one function, put together."""

from __future__ import annotations

from dataclasses import dataclass

from p4reduce_switch.program.ir.program import Program
from p4reduce_switch.program.layout import Layout
from p4reduce_switch.program.llvm.actions import Actions
from p4reduce_switch.program.llvm.emitter import Emitter, Value
from p4reduce_switch.program.llvm.expressions import Expressions
from p4reduce_switch.program.llvm.handover import Handover
from p4reduce_switch.program.llvm.helpers import Helpers
from p4reduce_switch.program.llvm.numbers import Numbers
from p4reduce_switch.program.llvm.packet_state import PacketState
from p4reduce_switch.program.llvm.statements import Statements
from p4reduce_switch.program.llvm.world import World
from p4reduce_switch.program.memory import StateMap


@dataclass(frozen=True)
class Parts:
    """The writers of one function."""

    e: Emitter
    n: Numbers
    packet: PacketState
    world: World
    x: Expressions
    statements: Statements
    actions: Actions


def parts_of(
    emitter: Emitter,
    helpers: Helpers,
    program: Program,
    layout: Layout,
    map_: StateMap,
    state: Value,
    record: Value,
    failed: Value,
    handover: Handover,
) -> Parts:
    """All writers, for a packet whose record is there."""
    numbers = Numbers(emitter, helpers)
    packet_state = PacketState(emitter, numbers, layout, record)
    world = World(emitter, numbers, packet_state, program, map_, state, failed, handover)
    expressions = Expressions(emitter, numbers, packet_state, world)
    statements = Statements(expressions, world)
    return Parts(emitter, numbers, packet_state, world, expressions, statements, Actions(statements))

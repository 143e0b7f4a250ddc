"""Actions, inlined at each call, with a basic block for each jump target."""

from __future__ import annotations

from p4reduce_switch.program.ir.flow import jumps, loop_heads
from p4reduce_switch.program.ir.program import Action
from p4reduce_switch.program.ir.statements import Jump, JumpUnless
from p4reduce_switch.program.llvm.emitter import I64, Value
from p4reduce_switch.program.llvm.expressions import Scope
from p4reduce_switch.program.llvm.host_abi import Failure
from p4reduce_switch.program.llvm.packet_state import Cell
from p4reduce_switch.program.llvm.statements import Statements
from p4reduce_switch.program.memory import argument_kinds

MAX_STEPS = 1_000_000
"""Maximum number of basic blocks that an action with loops may execute."""


class Actions:
    """Emits actions."""

    def __init__(self, statements: Statements) -> None:
        self.statements = statements
        self.x = statements.x
        self.e = statements.e

    def write(self, action: Action, arguments: Value) -> None:
        """Emit an action; `arguments` points to its arguments."""
        before = self.x.scope
        kinds = argument_kinds(action)
        self.x.scope = Scope([Cell(self.e.at(arguments, offset), kind) for offset, kind in kinds])
        if any(isinstance(instruction, (Jump, JumpUnless)) for instruction in action.code):
            self._jumping(action)
        else:
            for instruction in action.code:
                assert not isinstance(instruction, (Jump, JumpUnless))
                self.statements.write(instruction)
        self.x.scope = before

    def _jumping(self, action: Action) -> None:
        graph, code = jumps(action.code), action.code
        targets = {target for node in graph.values() if len(node) > 1 for target in node}
        targets |= {graph[i][0] for i, instruction in enumerate(code) if isinstance(instruction, Jump)}
        blocks = {target: self.e.block() for target in targets | {None}}
        steps = None
        if loop_heads(0, graph):
            steps = self.e.local(I64)
            self.e.store(self.e.i64(0), steps)
        for index, instruction in enumerate(code):
            if index in blocks:
                self._count_step(steps, index)
                self.e.continue_in(blocks[index])
            if isinstance(instruction, JumpUnless) and len(graph[index]) > 1:
                condition = self.x.test(instruction.condition)
                self._count_step(steps, index)
                self.e.b.cbranch(condition, blocks[graph[index][0]], blocks[graph[index][1]])
                self.e.b.position_at_end(self.e.block())
            elif isinstance(instruction, Jump):
                self._count_step(steps, index)
                self.e.jump(blocks[graph[index][0]])
            elif not isinstance(instruction, JumpUnless):
                self.statements.write(instruction)
        self.e.continue_in(blocks[None])

    def _count_step(self, steps: Value, index: int) -> None:
        """End a basic block of an action with a loop."""
        if steps is None or index == 0:
            return
        count = self.e.b.add(self.e.load(I64, steps), self.e.i64(1))
        self.e.store(count, steps)
        with self.e.if_then(self.statements.n.less(self.e.i64(MAX_STEPS), count, False)):
            self.statements.context.fail(Failure.ENDLESS_ACTION, self.e.i64(0), False, 0)

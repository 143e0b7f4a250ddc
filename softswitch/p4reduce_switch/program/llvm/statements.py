"""Statements of the IR as LLVM instructions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from p4reduce_switch.program import packet
from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.ir import statements as ir
from p4reduce_switch.program.ir.flow import jumps, loop_heads
from p4reduce_switch.program.ir.intervals import Data
from p4reduce_switch.program.ir.places import HeaderStack, UnionStack
from p4reduce_switch.program.ir.program import Action
from p4reduce_switch.program.ir.statements import Jump, JumpUnless
from p4reduce_switch.program.llvm.codegen_context import CodegenContext
from p4reduce_switch.program.llvm.emitter import I64, Value
from p4reduce_switch.program.llvm.expressions import Expressions, Scope
from p4reduce_switch.program.llvm.host_abi import Failure
from p4reduce_switch.program.llvm.packet_state import Cell
from p4reduce_switch.program.llvm.references import HeaderCells
from p4reduce_switch.program.memory import Call, Word, argument_kinds
from p4reduce_switch.program.steps import Step


class Statements:
    """Emits statements."""

    def __init__(self, expressions: Expressions, context: CodegenContext) -> None:
        self.x = expressions
        self.e = expressions.e
        self.n = expressions.n
        self.packet = expressions.packet
        self.context = context

    def write(self, statement: ir.Statement) -> None:
        """Emit one statement."""
        _WRITERS[type(statement)](self, statement)

    # ---- assignments

    def _store(self, node: ir.Store) -> None:
        self.x.store(self.x.references.field(node.target), node.value)

    def _register_write(self, node: ir.RegisterWrite) -> None:
        index, inside = self.x.checked_index(node.index, node.register.size)

        def write() -> None:
            self.context.lock(index)
            cell = self.context.register_cell(node.register, index)
            self.x.store(cell, node.value)
            self._trace(Step.WRITTEN, node.register, index, cell)

        self._guarded(inside, write)

    def _trace(self, what: Step, subject: object, index: Value, result: Cell | Value) -> None:
        self.context.trace(
            what,
            subject,
            lambda: [(index, False), (self.packet.load(result) if isinstance(result, Cell) else result, False)],
        )

    def _guarded(self, inside: Value | None, write: Callable[[], None]) -> None:
        if inside is None:
            write()
            return
        with self.e.if_then(inside):
            write()

    def _into(self, target: ir.Assignment, result: Cell | Value) -> None:
        """Emit an assignment whose Result is `result`."""
        before, self.x.scope.result = self.x.scope.result, result
        self.write(target)
        self.x.scope.result = before

    def _copy_varbit(self, node: ir.CopyVarbit) -> None:
        target, source = self.x.references.header(node.target.header), self.x.references.header(node.source.header)
        offsets = ((node.target.offset, node.source.offset), (target.type.length_offset, source.type.length_offset))
        for to, of in offsets:
            self._copy_cell(target.slot(to), source.slot(of))

    def _copy_cell(self, target: Cell, source: Cell) -> None:
        if target.kind != source.kind:
            raise UnsupportedConstructError("a varbit field copied to one of another size")
        self.packet.copy(target, source)

    def _copy_header(self, node: ir.CopyHeader) -> None:
        target, source = self.x.references.header(node.target), self.x.references.header(node.source)
        valid = source.type.valid_offset

        def copy() -> None:
            self._copy_slots(target, source)
            self._invalidate(target)

        self.e.if_else(self.x.valid(source.slot(valid)), copy, lambda: self.packet.clear(target.slot(valid)))

    def _copy_slots(self, target: HeaderCells, source: HeaderCells) -> None:
        for to, of in zip(target.slots(), source.slots(), strict=True):
            self._copy_cell(to, of)

    def _invalidate(self, header: HeaderCells) -> None:
        for sibling in header.siblings():
            self.packet.clear(sibling)

    def _copy_union(self, node: ir.CopyUnion) -> None:
        targets, sources = self.x.references.members(node.target), self.x.references.members(node.source)
        for target, source in zip(targets, sources, strict=True):
            self._copy_slots(target, source)

    def _copy_stack(self, node: ir.CopyStack) -> None:
        to, source = node.target, node.source
        self.packet.set(to.next, self.packet.number(source.next))
        if self._kinds(to) != self._kinds(source):
            raise UnsupportedConstructError("a stack copied to one of another kind")
        size = to.size * self.packet.layout.stride(to)
        self.e.move(self.packet.cell(to.base).pointer, self.packet.cell(source.base).pointer, size)

    def _kinds(self, stack: HeaderStack | UnionStack) -> list[Any]:
        return self.packet.layout.kinds[stack.base : stack.base + stack.stride]

    # ---- validity

    def _add_header(self, node: ir.AddHeader) -> None:
        header = self.x.references.header(node.header)
        valid = header.slot(header.type.valid_offset)
        with self.e.if_then(self.e.b.not_(self.x.valid(valid))):
            for cell in header.slots()[:-1]:
                self.packet.clear(cell)
            self.packet.store(valid, self.e.i64(1))
            self._invalidate(header)
            self._lengthen(self.e.i64(header.type.fixed_bits // 8))

    def _remove_header(self, node: ir.RemoveHeader) -> None:
        header = self.x.references.header(node.header)
        kind, valid = header.type, header.slot(header.type.valid_offset)
        with self.e.if_then(self.x.valid(valid)):
            length: Value = self.e.i64(kind.fixed_bits // 8)
            if kind.varbit is not None:
                bits = self.packet.load(header.slot(kind.length_offset))
                length = self.e.b.add(length, self.e.b.lshr(bits, self.e.i64(3)))
            self._lengthen(self.e.b.sub(self.e.i64(0), length))
            self.packet.clear(valid)

    def _lengthen(self, by: Value) -> None:
        self.packet.set(packet.LENGTH, self.e.b.add(self.packet.number(packet.LENGTH), by))

    def _push(self, node: ir.PushFront) -> None:
        stack, stride = node.stack, self.packet.layout.stride(node.stack)
        count = self.e.b.add(self.packet.number(stack.next), self.e.i64(node.count))
        most = self.e.i64(stack.size)
        self.packet.set(stack.next, self.e.b.select(self.n.less(most, count, True), most, count))
        start, kept = self.packet.cell(stack.base).pointer, (stack.size - node.count) * stride
        self.e.move(self.e.at(start, node.count * stride), start, kept)
        self.e.clear(start, node.count * stride)

    def _pop(self, node: ir.PopFront) -> None:
        stack, stride = node.stack, self.packet.layout.stride(node.stack)
        count, zero = self.e.b.sub(self.packet.number(stack.next), self.e.i64(node.count)), self.e.i64(0)
        self.packet.set(stack.next, self.e.b.select(self.n.less(count, zero, True), zero, count))
        start, kept = self.packet.cell(stack.base).pointer, (stack.size - node.count) * stride
        self.e.move(start, self.e.at(start, node.count * stride), kept)
        self.e.clear(self.e.at(start, kept), node.count * stride)

    # ---- packet primitives

    def _clone(self, node: ir.Clone) -> None:
        self.packet.set(packet.CLONE, self.e.b.add(self.x.at_most_64_bits(node.session), self.e.i64(1)))
        self._set(packet.CLONE_FIELDS, node.field_list)

    def _set(self, slot: int, value: Data) -> None:
        self.packet.set(slot, self.x.at_most_64_bits(value))

    def _truncate(self, node: ir.Truncate) -> None:
        length, before = self.x.at_most_64_bits(node.length), self.packet.number(packet.TRUNCATE)
        self.packet.set(packet.TRUNCATE, self.e.b.select(self.n.less(length, before, False), length, before))

    # ---- state

    def _count(self, node: ir.Count) -> None:
        index, inside = self.x.checked_index(node.index, node.counter.size)

        def count() -> None:
            self.context.count(self.context.counter(node.counter, index))
            self.context.trace(Step.COUNTED, node.counter, lambda: [(index, False)])

        self._guarded(inside, count)

    def _register_read(self, node: ir.RegisterRead) -> None:
        index, inside = self.x.checked_index(node.index, node.register.size)

        def read() -> None:
            self.context.lock(index)
            cell = self.context.register_cell(node.register, index)
            self._trace(Step.READ, node.register, index, cell)
            self._into(node.into, cell)

        self._guarded(inside, read)

    def _execute_meter(self, node: ir.MeterExecute) -> None:
        index, inside = self.x.checked_index(node.index, node.meter.size)

        def execute() -> None:
            length = self.packet.number(packet.INGRESS_LENGTH)
            color = self.context.call(Call.METER, self.context.meters[node.meter], index, length)
            self._trace(Step.METERED, node.meter, index, color)
            self._into(node.into, color)

        self._guarded(inside, execute)

    def _random(self, node: ir.RandomNumber) -> None:
        bounds = []
        for side in (node.low, node.high):
            if side.signed_bits > 64:
                raise UnsupportedConstructError("random numbers of more than 63 bits")
            bounds.append(self.x.low(side, 64))
        with self.e.if_then(self.e.b.not_(self.n.less(bounds[1], bounds[0], True))):
            self._into(node.into, self.context.call(Call.RANDOM, 0, *bounds))

    # ---- checks and messages

    def _assert(self, node: ir.Assert) -> None:
        with self.e.if_then(self.e.b.not_(self.x.test(node.condition))):
            self.context.fail(Failure.ASSERT, self.e.i64(0), False, 0)

    def _log(self, node: ir.Log) -> None:
        """The values are always computed, since that may fail the frame."""
        values = [self.x.exact(value) for value in node.values]
        with self.e.if_then(self.e.b.not_(self.n.is_zero(self.context.word(Word.LOGGING)))):
            self.context.store_values(values, self.context.host_abi.log_words)
            number = self.context.host_abi.number_of[node]
            self.context.call(Call.LOG, number, self.e.i64(0), self.e.i64(0))


_WRITERS: dict[type, Callable[[Statements, Any], None]] = {
    ir.Store: Statements._store,
    ir.RegisterWrite: Statements._register_write,
    ir.RegisterRead: Statements._register_read,
    ir.MeterExecute: Statements._execute_meter,
    ir.RandomNumber: Statements._random,
    ir.Count: Statements._count,
    ir.CopyVarbit: Statements._copy_varbit,
    ir.CopyHeader: Statements._copy_header,
    ir.CopyUnion: Statements._copy_union,
    ir.CopyStack: Statements._copy_stack,
    ir.AddHeader: Statements._add_header,
    ir.RemoveHeader: Statements._remove_header,
    ir.PushFront: Statements._push,
    ir.PopFront: Statements._pop,
    ir.Exit: lambda self, _node: self.packet.set(packet.EXIT, 1),
    ir.Clone: Statements._clone,
    ir.Resubmit: lambda self, node: self._set(packet.RESUBMIT, node.field_list),
    ir.Recirculate: lambda self, node: self._set(packet.RECIRCULATE, node.field_list),
    ir.SendDigest: lambda self, node: self._set(packet.DIGEST, node.digest),
    ir.Truncate: Statements._truncate,
    ir.Assert: Statements._assert,
    ir.Log: Statements._log,
}


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
        cells = [Cell(self.e.at(arguments, offset), kind) for offset, kind in kinds]
        self.x.scope = Scope(cells)
        context = self.statements.context
        context.trace(Step.ACTION, action, lambda: [(self.x.packet.load(cell), False) for cell in cells])
        if any(isinstance(instruction, (Jump, JumpUnless)) for instruction in action.code):
            self._jumping(action)
        else:
            for index, instruction in enumerate(action.code):
                assert not isinstance(instruction, (Jump, JumpUnless))
                self._trace(action, index)
                self.statements.write(instruction)
            self._trace(action, len(action.code))
        self.x.scope = before

    def _trace(self, action: Action, index: int) -> None:
        """Emit the reports of the primitives that begin at this instruction."""
        first, last = (bisect_left(action.primitives, at, key=lambda one: one.start) for at in (index, index + 1))
        for primitive in action.primitives[first:last]:
            self.statements.context.trace(Step.PRIMITIVE, primitive)

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
            self._trace(action, index)
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

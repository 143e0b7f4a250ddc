"""The parser: a basic block for each state. An error that ends parsing is stored in PARSER_ERROR."""

from __future__ import annotations

from collections.abc import Sequence

from p4reduce_switch.program import packet
from p4reduce_switch.program.ir import program as ir_program
from p4reduce_switch.program.ir import statements as ir
from p4reduce_switch.program.ir.flow import loop_heads, order
from p4reduce_switch.program.ir.intervals import Data
from p4reduce_switch.program.ir.places import HeaderElement, HeaderRef, Member, Stack
from p4reduce_switch.program.ir.program import Parser, ParserErrors, SetCase, State
from p4reduce_switch.program.llvm.codegen_context import CodegenContext
from p4reduce_switch.program.llvm.emitter import I64, Emitter, Value
from p4reduce_switch.program.llvm.expressions import Scope
from p4reduce_switch.program.llvm.host_abi import Failure
from p4reduce_switch.program.llvm.numbers import Number, size_for
from p4reduce_switch.program.llvm.packet_state import Cell
from p4reduce_switch.program.llvm.references import HeaderCells
from p4reduce_switch.program.llvm.statements import Statements
from p4reduce_switch.program.memory import ValueSetWord
from p4reduce_switch.program.steps import Step

MAX_STATES = 10_000
"""Maximum number of parser states for a frame."""


class ParserWriter:
    """Emits the parser over `length` bytes at `frame`."""

    def __init__(self, statements: Statements, errors: ParserErrors, frame: Value, length: Value) -> None:
        self.statements = statements
        self.x = statements.x
        self.e = statements.e
        self.n = statements.n
        self.packet = self.x.packet
        self.context = statements.context
        self.errors = errors
        self.frame = frame
        self.length = length
        self.offset = self.e.local(I64)
        self._steps: Value = None
        self._end: Value = None

    def write(self, parser: Parser) -> Value:
        """Emit the parser; return the number of parsed bytes."""
        self.e.store(self.e.i64(0), self.offset)
        self.context.trace(Step.PARSER)
        if parser.entry is None:
            return self.e.load(I64, self.offset)
        self.x.scope = Scope([], frame=self._position)
        heads = loop_heads(parser.entry, parser.graph)
        if heads:
            self._steps = self.e.local(I64)
            self.e.store(self.e.i64(0), self._steps)
        nodes = order(parser.entry, parser.graph)[::-1]
        blocks: dict[int | None, Value] = {node: self.e.block() for node in (*nodes, None)}
        self._end = blocks[None]
        self.e.continue_in(blocks[parser.entry])
        for number in nodes:
            self.e.b.position_at_end(blocks[number])
            if number in heads:
                self._count_step()
            state = parser.states[number]
            self.context.trace(Step.STATE, state.name)
            for operation in state.operations:
                self._operation(operation)
            self._select(state, blocks)
        self.e.b.position_at_end(self._end)
        if heads:
            self._count_step()
        self.x.scope = Scope([])
        self.context.trace(Step.PARSED, None, lambda: [(self.packet.number(packet.PARSER_ERROR), False)])
        return self.e.load(I64, self.offset)

    def _position(self) -> Value:
        return self.e.at(self.frame, self.e.load(I64, self.offset))

    def _count_step(self) -> None:
        """Emit the check for too many states in a loop."""
        count = self.e.b.add(self.e.load(I64, self._steps), self.e.i64(1))
        self.e.store(count, self._steps)
        with self.e.if_then(self.n.less(self.e.i64(MAX_STATES + 1), count, False)):
            self.context.fail(Failure.ENDLESS_PARSER, self.e.i64(0), False, 0)

    # ---- operations

    def _fail(self, condition: Value, error: int) -> None:
        with self.e.if_then(condition):
            self.packet.set(packet.PARSER_ERROR, error)
            self.e.jump(self._end)

    def _require_bytes(self, count: Value) -> None:
        """Emit PacketTooShort unless that many bytes follow, a non-negative i64."""
        left = self.e.b.sub(self.length, self.e.load(I64, self.offset))
        self._fail(self.n.less(left, count, False), self.errors.packet_too_short)

    def _skip(self, count: Value) -> None:
        self.e.store(self.e.b.add(self.e.load(I64, self.offset), count), self.offset)

    def _operation(self, operation: ir.ParserOperation) -> None:
        match operation:
            case ir.Extract():
                self._extract(operation)
            case ir.Advance():
                count = self._whole_bytes(operation.bits)
                self._require_bytes(count)
                self._skip(count)
            case ir.Verify():
                with self.e.if_then(self.e.b.not_(self.x.test(operation.condition))):
                    self.packet.set(packet.PARSER_ERROR, self.x.at_most_64_bits(operation.error))
                    self.e.jump(self._end)
            case ir.RequireBytes():
                self._require_bytes(self.e.i64(operation.count))
            case ir.RequireElement():
                empty = self.n.is_zero(self.packet.number(operation.stack.next))
                self._fail(empty, self.errors.stack_out_of_bounds)
            case _:
                self.statements.write(operation)

    def _whole_bytes(self, bits: Data) -> Value:
        """Return bits in bytes; ParserInvalidArgument unless they are whole bytes. Above 2^62 the result is 2^62."""
        value, signed = self.x.exact(bits)
        size = self.n.size(value)
        odd = self.e.b.not_(self.n.is_zero(self.n.and_(value, self.n.constant(7, size))))
        if signed:
            odd = self.e.b.or_(odd, self.n.less(value, self.n.constant(0, size), True))
        self._fail(odd, self.errors.parser_invalid_argument)
        count = self.n.shift_right_by(value, 3, False)
        if size == 64:
            return count
        large = self.n.less(self.n.constant(1 << 62, size), count, False)
        return self.e.b.select(large, self.e.i64(1 << 62), self.n.limbs(count)[0])

    # ---- extraction

    def _extract(self, node: ir.Extract) -> None:
        stack = _stack_of(node.header)
        if stack is not None:
            full = self.n.less(self.e.i64(stack.size - 1), self.packet.number(stack.next), True)
            self._fail(full, self.errors.stack_out_of_bounds)
        header = self.x.references.header(node.header)
        self.context.trace(Step.EXTRACT, node.header)
        if node.bits is None:
            self._extract_fixed(header)
        else:
            self._extract_varbit(header, node.bits)
        self.packet.store(header.slot(header.type.valid_offset), self.e.i64(1))
        for sibling in header.siblings():
            self.packet.clear(sibling)
        if stack is not None:
            self.packet.set(stack.next, self.e.b.add(self.packet.number(stack.next), self.e.i64(1)))

    def _extract_fixed(self, header: HeaderCells) -> None:
        size = header.type.fixed_bits // 8
        self._require_bytes(self.e.i64(size))
        start, skip = self._position(), 0
        for field in header.type.fields:
            self._extract_field(header.slot(field.offset), start, skip, field.width)
            skip += field.width
        self._skip(self.e.i64(size))

    def _extract_field(self, cell: Cell, start: Value, skip: int, bits: int) -> None:
        """Emit the extraction of a field."""
        kind = cell.kind
        if bits == 0:
            self.packet.clear(cell)
        elif cell.place is not None and skip % 8 == 0 and bits % 8 == 0:
            self.packet.refer(cell, self.e.at(start, skip // 8))
        elif kind.wide and skip % 8 == 0 and bits % 8 == 0:
            self.e.copy(cell.pointer, self.e.at(start, skip // 8), kind.bytes_)
        else:
            value: Number = self.n.load_bits(start, skip, bits, kind.signed)
            self.packet.store(cell, self.n.resize(value, size_for(bits), kind.signed))

    def _extract_varbit(self, header: HeaderCells, bits: Data) -> None:
        kind = header.type
        assert kind.varbit is not None
        fixed = kind.fixed_bits // 8
        count = self._whole_bytes(bits)
        self._require_bytes(self.e.b.add(count, self.e.i64(fixed)))
        cell = header.slot(kind.varbit.offset)
        self._fail(self.n.less(self.e.i64(cell.kind.bytes_), count, False), self.errors.header_too_short)
        start, skip = self._position(), 0
        for field in kind.fields[: kind.varbit.offset]:
            self._extract_field(header.slot(field.offset), start, skip, field.width)
            skip += field.width
        source = self.e.at(start, skip // 8)
        self.e.clear(cell.pointer, cell.kind.bytes_)
        self.e.copy(cell.pointer, source, count)
        self.packet.store(header.slot(kind.length_offset), self.e.b.shl(count, self.e.i64(3)))
        start, skip = self.e.at(source, count), 0
        for field in kind.fields[kind.varbit.offset + 1 :]:
            self._extract_field(header.slot(field.offset), start, skip, field.width)
            skip += field.width
        self._skip(self.e.b.add(count, self.e.i64(fixed)))

    # ---- select

    def _select(self, state: State, blocks: dict[int | None, Value]) -> None:
        keys = [(self.x.low(value, size_for(bits)), bits) for value, bits in state.keys] if state.cases else []
        self.context.trace(
            Step.SELECT, state, lambda: [(value, False) for value in (*(key for key, _ in keys), self._offset())]
        )
        for case in state.cases:
            if isinstance(case, SetCase):
                matches = _emit_value_set_match(self.e, self.context, case.value_set, [key for key, _ in keys])
                self._branch_if(matches, blocks[case.next])
                continue
            condition = self.e.bit(True)
            for (key, bits), (mask, value) in zip(keys, case.tests, strict=True):
                size = self.n.size(key)
                masked = key if mask == (1 << bits) - 1 else self.n.and_(key, self.n.constant(mask, size))
                condition = self.e.b.and_(condition, self.n.equal(masked, self.n.constant(value, size)))
            self._branch_if(condition, blocks[case.next])
        self.e.b.branch(blocks[state.default])

    def _offset(self) -> Value:
        return self.e.load(I64, self.offset)

    def _branch_if(self, condition: Value, block: Value) -> None:
        following = self.e.block()
        self.e.b.cbranch(condition, block, following)
        self.e.b.position_at_end(following)


def _stack_of(ref: HeaderRef) -> Stack | None:
    """Return the stack whose next element is extracted."""
    if isinstance(ref, HeaderElement):
        return ref.stack
    return ref.union.stack if isinstance(ref, Member) else None


def _emit_value_set_match(
    e: Emitter, context: CodegenContext, declared: ir_program.ValueSet, keys: Sequence[Number]
) -> Value:
    """Return whether any member of a value set matches these keys, each of size `size_for`."""
    n, base = context.n, context.offsets.value_sets[declared]
    members = context.pointer(base + ValueSetWord.MEMBERS)
    sizes = [size_for(width) // 64 for width in declared.widths]
    found = e.local(I64)
    e.store(e.i64(0), found)
    with e.loop(context.word(base + ValueSetWord.COUNT)) as index:
        start = e.word(members, e.b.mul(index, e.i64(4 * sum(sizes))))
        matches, offset = e.bit(True), 0
        for key, words in zip(keys, sizes, strict=True):
            mask, value, low, high = (
                n.from_limbs([e.load(I64, e.word(start, offset + part * words + word)) for word in range(words)])
                for part in range(4)
            )
            outside = e.b.or_(n.less(key, low, False), n.less(high, key, False))
            matches = e.b.and_(matches, e.b.and_(n.equal(n.and_(key, mask), value), e.b.not_(outside)))
            offset += 4 * words
        with e.if_then(matches):
            e.store(e.i64(1), found)
    return e.b.not_(n.is_zero(e.load(I64, found)))

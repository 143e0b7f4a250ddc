"""The deparser: the valid headers in order, then the payload, limited by `truncate`."""

from __future__ import annotations

from p4reduce_switch.program import packet
from p4reduce_switch.program.ir.places import FieldType, Header, HeaderType
from p4reduce_switch.program.layout import Layout
from p4reduce_switch.program.llvm.codegen_context import CodegenContext
from p4reduce_switch.program.llvm.emitter import I64, Value
from p4reduce_switch.program.llvm.expressions import Expressions
from p4reduce_switch.program.llvm.numbers import Number, size_for
from p4reduce_switch.program.steps import Step


class Deparser:
    """Emits the deparser."""

    def __init__(self, expressions: Expressions, context: CodegenContext) -> None:
        self.x = expressions
        self.context = context
        self.e = expressions.e
        self.n = expressions.n
        self.packet = expressions.packet

    def write(self, order: tuple[Header, ...], target: Value, payload: Value, length: Value) -> Value:
        """Emit writing the frame to `target`; return its length."""
        offset = self.e.local(I64)
        self.e.store(self.e.i64(0), offset)
        for header in order:
            with self.e.if_then(self.x.valid(self.packet.cell(header.valid))):
                self.context.trace(Step.EMIT, header)
                start = self.e.at(target, self.e.load(I64, offset))
                count = self._header(header, start)
                self.e.store(self.e.b.add(self.e.load(I64, offset), count), offset)
        done = self.e.load(I64, offset)
        self.e.copy(self.e.at(target, done), payload, length)
        whole, limit = self.e.b.add(done, length), self.packet.number(packet.TRUNCATE)
        return self.e.b.select(self.n.less(limit, whole, False), limit, whole)

    def _header(self, header: Header, start: Value) -> Value:
        """Emit writing a header; return its length."""
        kind = header.type
        if kind.varbit is None:
            self._fields(header, kind.fields, start)
            return self.e.i64(kind.fixed_bits // 8)
        before = kind.fields[: kind.varbit.offset]
        self._fields(header, before, start)
        start = self.e.at(start, sum(field.width for field in before) // 8)
        count = self.e.b.lshr(self.packet.number(header.base + kind.length_offset), self.e.i64(3))
        self.e.copy(start, self.packet.cell(header.base + kind.varbit.offset).pointer, count)
        self._fields(header, kind.fields[kind.varbit.offset + 1 :], self.e.at(start, count))
        return self.e.b.add(count, self.e.i64(kind.fixed_bits // 8))

    def _fields(self, header: Header, fields: tuple[FieldType, ...], start: Value) -> None:
        """Group neighbouring fields that together fill whole bytes."""
        group: list[FieldType] = []
        position = width = 0
        for field in fields:
            group.append(field)
            width += field.width
            if width % 8 == 0:
                self._unit(header, group, width, self.e.at(start, position))
                position += width // 8
                group, width = [], 0

    def _unit(self, header: Header, group: list[FieldType], width: int, where: Value) -> None:
        cells = [self.packet.cell(header.base + field.offset) for field in group]
        if len(group) == 1 and cells[0].kind.wide:
            self.e.copy(where, self.packet.bytes_of(cells[0]), width // 8)
            return
        size, position = size_for(width), width
        together: Number = None
        for field, cell in zip(group, cells, strict=True):
            position -= field.width
            if field.width == 0:
                continue
            value = self.packet.load(cell)
            if field.signed:
                value = self.n.truncate(value, field.width, False)
            part = self.n.shift_left_by(self.n.resize(value, size, False), position)
            together = part if together is None else self.n.or_(together, part)
        if together is not None:
            self.n.store_bytes(together, where, width // 8)


def longest(order: tuple[Header, ...], layout: Layout) -> int:
    """Return the maximum bytes of all headers together."""
    return sum(_most_bytes(header.type, header.base, layout) for header in order)


def _most_bytes(kind: HeaderType, base: int, layout: Layout) -> int:
    varbit = 0 if kind.varbit is None else layout.kinds[base + kind.varbit.offset].bytes_
    return kind.fixed_bits // 8 + varbit

"""The lookup of a table: probing a hash table, or a scan of the entries by descending priority."""

from __future__ import annotations

from p4reduce_switch.program.ir.program import Table
from p4reduce_switch.program.llvm.codegen_context import CodegenContext
from p4reduce_switch.program.llvm.emitter import I32, I64, Value
from p4reduce_switch.program.llvm.expressions import Expressions
from p4reduce_switch.program.memory import RowLayout, TableWord
from p4reduce_switch.program.state.rows import MULTIPLIER


class Lookups:
    """Emits lookups."""

    def __init__(self, expressions: Expressions, context: CodegenContext) -> None:
        self.x = expressions
        self.e = expressions.e
        self.context = context

    def find(self, table: Table) -> Value:
        """Emit a lookup; return the number of the matching row, or -1."""
        layout = self.context.offsets.rows[table]
        key: list[Value] = []
        for field, words in zip(table.keys, layout.key_words, strict=True):
            key += self.x.n.limbs(self.x.low(field.value, 64 * words))
        return self._probe(table, layout, key) if layout.exact else self._scan(table, layout, key)

    def _word(self, table: Table, word: TableWord) -> int:
        return self.context.offsets.tables[table] + word

    def _load_row(self, index: Value, position: Value) -> Value:
        """Return the 32-bit number at a position of the index, in 64 bits."""
        where = self.e.b.gep(index, [position], source_etype=I32)
        return self.e.b.sext(self.e.load(I32, where, align=4), I64)

    def _probe(self, table: Table, layout: RowLayout, key: list[Value]) -> Value:
        e, b = self.e, self.e.b
        rows, index = (
            self.context.pointer(self._word(table, TableWord.ROWS)),
            self.context.pointer(self._word(table, TableWord.INDEX)),
        )
        mask = self.context.word(self._word(table, TableWord.COUNT))
        hashed: Value = e.i64(0)
        for word in key:
            hashed = b.mul(b.xor(hashed, word), e.i64(MULTIPLIER))
            hashed = b.xor(hashed, b.lshr(hashed, e.i64(32)))
        position, found = e.local(I64), e.local(I64)
        e.store(b.and_(hashed, mask), position)
        head, compare, further, after = e.block(), e.block(), e.block(), e.block()
        e.continue_in(head)
        at = e.load(I64, position)
        row = b.sub(self._load_row(index, at), e.i64(1))
        e.store(row, found)
        b.cbranch(b.icmp_signed("<", row, e.i64(0)), after, compare)
        b.position_at_end(compare)
        start = e.word(rows, b.add(b.mul(row, e.i64(layout.words)), e.i64(RowLayout.MATCH)))
        differs: Value = e.i64(0)
        for number, word in enumerate(key):
            differs = b.or_(differs, b.xor(e.load(I64, e.word(start, number)), word))
        b.cbranch(b.icmp_unsigned("==", differs, e.i64(0)), after, further)
        b.position_at_end(further)
        e.store(b.and_(b.add(at, e.i64(1)), mask), position)
        b.branch(head)
        b.position_at_end(after)
        return e.load(I64, found)

    def _scan(self, table: Table, layout: RowLayout, key: list[Value]) -> Value:
        e, b = self.e, self.e.b
        rows = self.context.pointer(self._word(table, TableWord.ROWS))
        order = self.context.pointer(self._word(table, TableWord.INDEX))
        count = self.context.word(self._word(table, TableWord.COUNT))
        position, found = e.local(I64), e.local(I64)
        e.store(e.i64(0), position)
        e.store(e.i64(-1), found)
        head, compare, hit, further, after = e.block(), e.block(), e.block(), e.block(), e.block()
        e.continue_in(head)
        at = e.load(I64, position)
        b.cbranch(b.icmp_unsigned("<", at, count), compare, after)
        b.position_at_end(compare)
        row = self._load_row(order, at)
        start = e.word(rows, b.add(b.mul(row, e.i64(layout.words)), e.i64(RowLayout.MATCH)))
        matches = self._matches(table, layout, key, start)
        b.cbranch(matches, hit, further)
        b.position_at_end(further)
        e.store(b.add(at, e.i64(1)), position)
        b.branch(head)
        b.position_at_end(hit)
        e.store(row, found)
        e.continue_in(after)
        return e.load(I64, found)

    def _matches(self, table: Table, layout: RowLayout, key: list[Value], start: Value) -> Value:
        e, b, width = self.e, self.e.b, layout.part_words
        differs: Value = e.i64(0)
        for number, word in enumerate(key):
            value, mask = e.load(I64, e.word(start, number)), e.load(I64, e.word(start, width + number))
            differs = b.or_(differs, b.xor(b.and_(word, mask), value))
        matches = b.icmp_unsigned("==", differs, e.i64(0))
        first = 0
        for field, words in zip(table.keys, layout.key_words, strict=True):
            if field.kind == "range":
                number = self.x.n.from_limbs(key[first : first + words])
                low, high = (
                    self.x.n.from_limbs(
                        [e.load(I64, e.word(start, part * width + first + word)) for word in range(words)]
                    )
                    for part in (2, 3)
                )
                outside = b.or_(self.x.n.less(number, low, False), self.x.n.less(high, number, False))
                matches = b.and_(matches, b.not_(outside))
            first += words
        return matches

"""Calculations: checksums and hashes over fields.

2^16 is 1 modulo 65535, so an Internet checksum is a sum of fields, each shifted by its position in a 16-bit word, of
any width, reduced modulo 65535 at the end. All other hashes are computed over a contiguous copy of the bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from p4reduce_switch.program import packet
from p4reduce_switch.program.ir import build
from p4reduce_switch.program.ir.externs import Algorithm, Calculation, Piece
from p4reduce_switch.program.ir.intervals import Interval
from p4reduce_switch.program.ir.places import Header
from p4reduce_switch.program.ir.program import Checksum
from p4reduce_switch.program.layout import Kind
from p4reduce_switch.program.llvm.codegen_context import CodegenContext
from p4reduce_switch.program.llvm.emitter import I64, Value
from p4reduce_switch.program.llvm.expressions import Expressions
from p4reduce_switch.program.llvm.numbers import size_for
from p4reduce_switch.program.memory import Call, Word
from p4reduce_switch.program.steps import Step

Payload = tuple[Value, Value]
"""Pointer to the payload, and its bytes."""


class Checksums:
    """Emits calculations; `payload` returns where the payload is."""

    def __init__(self, expressions: Expressions, context: CodegenContext, payload: Callable[[], Payload]) -> None:
        self.x = expressions
        self.e = expressions.e
        self.n = expressions.n
        self.packet = expressions.packet
        self.context = context
        self.payload = payload
        context.calculate = self.calculate

    def calculate(self, calculation: Calculation) -> Value:
        """Emit a calculation; return its result in 64 bits."""
        if calculation.algorithm is Algorithm.RANDOM:
            highest = self.e.i64((1 << calculation.algorithm.bits) - 1)
            return self.context.call(Call.RANDOM, 0, self.e.i64(0), highest)
        if calculation.algorithm is Algorithm.CSUM16 and _word_aligned(calculation.pieces):
            return self._internet_checksum(calculation)
        data, length = self._serialized(calculation)
        helpers, call = self.n.helpers, self.e.b.call
        match calculation.algorithm:
            case Algorithm.CSUM16:
                return self._folded(call(helpers.sum_words, [data, length]))
            case Algorithm.CRC16:
                return call(helpers.crc16, [data, length])
            case Algorithm.CRC_CCITT:
                return call(helpers.crc_ccitt, [data, length])
            case Algorithm.CRC32:
                return call(helpers.crc32, [data, length])
            case Algorithm.XOR16 | Algorithm.XOR32:
                return call(helpers.xor_words, [data, length, self.e.i64(calculation.algorithm.bits // 8)])
        return call(helpers.first_bytes, [data, length])

    def _if_valid(self, header: Header | None, write: Callable[[], None]) -> None:
        """Emit code that runs only if the header is valid; None: always."""
        if header is None:
            write()
            return
        with self.e.if_then(self.x.valid(self.packet.cell(header.valid))):
            write()

    # ---- the Internet checksum

    def _internet_checksum(self, calculation: Calculation) -> Value:
        total = self.e.local(I64)
        self.e.store(self.e.i64(0), total)

        def add(value: Value) -> None:
            self.e.store(self.e.b.add(self.e.load(I64, total), value), total)

        def add_group(group: list[Piece]) -> None:
            position = sum(piece.bits or 0 for piece in group)
            for piece in group:
                position -= piece.bits or 0
                if piece.bits:
                    self._add_piece(piece, position & 15, add)

        for header, group in _groups(calculation.pieces):
            self._if_valid(header, partial(add_group, group))
        if calculation.payload:
            add(self.e.b.call(self.n.helpers.sum_words, [*self.payload()]))
        return self._folded(self.e.load(I64, total))

    def _add_piece(self, piece: Piece, shift: int, add: Callable[[Value], None]) -> None:
        size = size_for(piece.bits or 0)
        for limb in self.x.stream(piece.value, size // 64):
            if size > 64 or (piece.bits or 0) + shift > 48:  # leaves room for the sum of many
                limb = self.e.b.add(self.e.b.and_(limb, self.e.i64(0xFFFFFFFF)), self.e.b.lshr(limb, self.e.i64(32)))
            add(self.e.b.shl(limb, self.e.i64(shift)))

    def _folded(self, total: Value) -> Value:
        b = self.e.b
        rest = b.urem(total, self.e.i64(0xFFFF))
        all_zero, no_rest = self.n.is_zero(total), self.n.is_zero(rest)
        full = b.select(all_zero, self.e.i64(0), self.e.i64(0xFFFF))
        return b.sub(self.e.i64(0xFFFF), b.select(no_rest, full, rest))

    # ---- contiguous bytes

    def _serialized(self, calculation: Calculation) -> tuple[Value, Value]:
        """Emit all pieces, padded to a whole byte, and the payload as bytes; return pointer and length."""
        data, position = self.context.pointer(Word.SCRATCH), self.e.local(I64)
        self.e.store(self.e.i64(0), position)
        self.e.clear(data, bytes_of(calculation, self.packet.layout.kinds))
        aligned = all((piece.bits or 0) % 8 == 0 for piece in calculation.pieces)

        def add_group(group: list[Piece]) -> None:
            for piece in group:
                self._append(piece, data, position, aligned)

        for header, group in _groups(calculation.pieces):
            self._if_valid(header, partial(add_group, group))
        bits = self.e.load(I64, position)
        length = self.e.b.lshr(self.e.b.add(bits, self.e.i64(7)), self.e.i64(3))
        if calculation.payload:
            start, count = self.payload()
            self.e.copy(self.e.at(data, length), start, count)
            length = self.e.b.add(length, count)
        return data, length

    def _append(self, piece: Piece, data: Value, position: Value, aligned: bool) -> None:
        at = self.e.load(I64, position)
        if piece.bits is None:
            length = self.packet.number(piece.length)
            self._append_varbit(piece, data, at, length)
            self.e.store(self.e.b.add(at, length), position)
            return
        if piece.bits == 0:
            return
        if aligned:
            where = self.e.at(data, self.e.b.lshr(at, self.e.i64(3)))
            self.n.store_limbs(self.x.stream(piece.value, size_for(piece.bits) // 64), where, piece.bits // 8)
        else:
            left = piece.bits
            for number, limb in reversed([*enumerate(self.x.stream(piece.value, size_for(piece.bits) // 64))]):
                count = left - 64 * number
                if count <= 0:
                    continue
                start = self.e.b.add(at, self.e.i64(piece.bits - left))
                self.e.b.call(self.n.helpers.append, [data, start, limb, self.e.i64(count)])
                left -= count
        self.e.store(self.e.b.add(at, self.e.i64(piece.bits)), position)

    def _append_varbit(self, piece: Piece, data: Value, at: Value, length: Value) -> None:
        source = self.x.references.field(piece.value.field).pointer  # type: ignore[attr-defined]
        with self.e.loop(self.e.b.lshr(length, self.e.i64(3))) as i:
            byte = self.n.load_bytes(self.e.at(source, i), 1)
            start = self.e.b.add(at, self.e.b.shl(i, self.e.i64(3)))
            self.e.b.call(self.n.helpers.append, [data, start, byte, self.e.i64(8)])

    # ---- verifyChecksum and computeChecksum

    def verify(self, checksums: list[Checksum]) -> None:
        """Emit the comparison of each checksum; set checksum_error when one is wrong."""
        for checksum in checksums:
            header = checksum.target.header
            if isinstance(header, Header) and header.metadata:
                self._verify(checksum)
            else:
                with self.e.if_then(self.x.valid(self.x.references.valid(header))):
                    self._verify(checksum)

    def _verify(self, checksum: Checksum) -> None:
        with self.e.if_then(self.x.test(checksum.condition)):
            cell = self.x.references.field(checksum.target)
            found = self.packet.load(cell)
            size = max(64, self.n.size(found))
            right = self.n.resize(self.calculate(checksum.calculation), max(size, 128), False)
            held = self.n.resize(found, max(size, 128), cell.kind.signed)
            self.context.trace(Step.VERIFIED, checksum, lambda: [(right, False), (held, False)])
            with self.e.if_then(self.e.b.not_(self.n.equal(held, right))):
                self.packet.set(packet.CHECKSUM_ERROR, 1)

    def update(self, checksums: list[Checksum]) -> None:
        """Emit the update of each checksum."""
        for checksum in checksums:
            with self.e.if_then(self.x.test(checksum.condition)):
                self.context.trace(Step.UPDATED, checksum)
                kind = checksum.target.type
                result = build.result(Interval.unsigned(checksum.calculation.algorithm.bits))
                self.x.scope.result = self.calculate(checksum.calculation)
                cell = self.x.references.field(checksum.target)
                self.x.store(cell, build.cut(result, kind.width, kind.signed))


def bytes_of(calculation: Calculation, kinds: Sequence[Kind]) -> int:
    """Return the maximum bytes of the pieces of a calculation."""
    bits = 0
    for piece in calculation.pieces:
        if piece.bits is None:
            slot = piece.value.field.slot  # type: ignore[attr-defined]
            bits += kinds[slot].bits
        else:
            bits += piece.bits
    return (bits + 7) // 8


def _groups(pieces: tuple[Piece, ...]) -> list[tuple[Header | None, list[Piece]]]:
    """Group neighbouring pieces of the same header."""
    groups: list[tuple[Header | None, list[Piece]]] = []
    for piece in pieces:
        if not groups or groups[-1][0] is not piece.header:
            groups.append((piece.header, []))
        groups[-1][1].append(piece)
    return groups


def _word_aligned(pieces: tuple[Piece, ...]) -> bool:
    """Return whether leaving out any invalid header keeps all others on 16-bit boundaries."""
    return all(
        all(piece.bits is not None for piece in group) and sum(piece.bits or 0 for piece in group) % 16 == 0
        for _, group in _groups(pieces)
    )

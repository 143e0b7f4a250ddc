"""Calculations as functions, and the two that verify and update checksums."""

from __future__ import annotations

from p4reduce_switch.program import packet
from p4reduce_switch.program.hashes import FUNCTIONS
from p4reduce_switch.program.ir import build
from p4reduce_switch.program.ir.externs import Algorithm, Calculation, Piece
from p4reduce_switch.program.ir.intervals import Interval
from p4reduce_switch.program.ir.places import Header
from p4reduce_switch.program.ir.program import Checksum
from p4reduce_switch.program.python.expressions import Expressions, slot
from p4reduce_switch.program.python.source import Source
from p4reduce_switch.program.python.units import joined


class Checksums:
    """Writes a function for each calculation, and those that verify and update checksums."""

    def __init__(self, source: Source, expressions: Expressions) -> None:
        self.source = source
        self.expressions = expressions

    def write_calculation(self, calculation: Calculation, name: str) -> None:
        """Write `name(f) -> int`."""
        pieces, payload = calculation.pieces, calculation.payload
        with self.source.block(f"def {name}(f):"):
            if calculation.algorithm is Algorithm.RANDOM:
                self.source.add(f"return random.randint(0, {(1 << calculation.algorithm.bits) - 1})")
            elif calculation.algorithm is Algorithm.CSUM16 and _word_aligned(pieces):
                self._internet_checksum(pieces, payload)
            else:
                self._join(pieces)
                data = "(v << (-n & 7)).to_bytes((n + 7) >> 3, 'big')"
                data += f" + f[{packet.PAYLOAD}]" if payload else ""
                function = self.source.bind("hash", FUNCTIONS[calculation.algorithm])
                self.source.add(f"return {function}({data})")

    def _condition(self, header: Header | None) -> str:
        return f"if f[{header.valid}]:" if header else "if True:"

    def _internet_checksum(self, pieces: tuple[Piece, ...], payload: bool) -> None:
        """Each field is weighted with 2^(its bit position modulo 16): 2^16 is 1 modulo 65535."""
        self.source.add("s = 0")
        for header, group in _groups(pieces):
            position = sum(piece.bits or 0 for piece in group)
            terms = []
            for piece in group:
                position -= piece.bits or 0
                shift, code = position & 15, self.expressions.data(piece.value)
                terms.append(f"({code} << {shift})" if shift else code)
            with self.source.block(self._condition(header)):
                self.source.add(f"s += {joined(self.source, terms, '+')}")
        if payload:
            self.source.add(f"p = f[{packet.PAYLOAD}]")
            self.source.add("s += from_bytes(p + b'\\0' if len(p) & 1 else p, 'big')")
        self.source.add("return 0xffff - (s % 0xffff or (0xffff if s else 0))")

    def _join(self, pieces: tuple[Piece, ...]) -> None:
        """Concatenate the pieces of valid headers: `v` holds `n` bits."""
        self.source.add("v = n = 0")
        for header, group in _groups(pieces):
            with self.source.block(self._condition(header)):
                for piece in group:
                    width = slot(piece.length) if piece.bits is None else str(piece.bits)
                    self.source.add(f"v = v << {width} | {self.expressions.data(piece.value)}; n += {width}")

    def write_verify(self, checksums: list[Checksum], name: str) -> None:
        """Write `name(f)`, which sets the checksum error when one is wrong."""
        with self.source.block(f"def {name}(f):"):
            for checksum in checksums:
                target, header = checksum.target, checksum.target.header
                wrong = f"{self._call(checksum)} != {slot(self.expressions.start(header), target.offset)}"
                valid = (
                    "" if isinstance(header, Header) and header.metadata else f"{self.expressions.valid(header)} and "
                )
                with self.source.block(f"if {valid}{self.expressions.test(checksum.condition)} and {wrong}:"):
                    self.source.add(f"f[{packet.CHECKSUM_ERROR}] = 1")

    def write_update(self, checksums: list[Checksum], name: str) -> None:
        """Write `name(f)`, which stores each checksum."""
        with self.source.block(f"def {name}(f):"):
            for checksum in checksums:
                target, kind = checksum.target, checksum.target.type
                result = build.result(Interval.unsigned(checksum.calculation.algorithm.bits))
                self.expressions.result = self._call(checksum)
                value = self.expressions.data(build.cut(result, kind.width, kind.signed))
                with self.source.block(f"if {self.expressions.test(checksum.condition)}:"):
                    self.source.add(f"{slot(self.expressions.start(target.header), target.offset)} = {value}")

    def _call(self, checksum: Checksum) -> str:
        return f"{self.expressions.names.calculations[checksum.calculation]}(f)"


def _groups(pieces: tuple[Piece, ...]) -> list[tuple[Header | None, list[Piece]]]:
    """Neighbouring pieces of the same header together."""
    groups: list[tuple[Header | None, list[Piece]]] = []
    for piece in pieces:
        if not groups or groups[-1][0] is not piece.header:
            groups.append((piece.header, []))
        groups[-1][1].append(piece)
    return groups


def _word_aligned(pieces: tuple[Piece, ...]) -> bool:
    """True when leaving out any invalid header keeps all others on 16-bit boundaries."""
    return all(
        all(piece.bits is not None for piece in group) and sum(piece.bits or 0 for piece in group) % 16 == 0
        for _, group in _groups(pieces)
    )

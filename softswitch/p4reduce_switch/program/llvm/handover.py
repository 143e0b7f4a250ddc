"""Numbers that compiled code hands to Python: those of a digest, and those of a message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from p4reduce_switch.program.ir.features import walk
from p4reduce_switch.program.ir.program import Program
from p4reduce_switch.program.ir.statements import Log
from p4reduce_switch.program.layout import Layout
from p4reduce_switch.program.llvm.extent import Extents
from p4reduce_switch.program.llvm.numbers import size_for


@dataclass(frozen=True, slots=True)
class Form:
    """How a number is handed over."""

    words: int
    signed: bool


class Handover:
    """The forms of all messages and digests; `number_of` says how compiled code calls a message."""

    def __init__(self, program: Program, layout: Layout) -> None:
        extents = Extents()
        self.logs = [node for node in walk(program) if isinstance(node, Log)]
        self.number_of = {node: number for number, node in enumerate(self.logs)}
        self.log_forms = [
            [_form(extents.of(value).bits, extents.of(value).signed) for value in node.values] for node in self.logs
        ]
        self.digest_forms = {
            id_: [_form(layout.kinds[slot.number].bits, layout.kinds[slot.number].signed) for slot in digest.fields]
            for id_, digest in program.digests.items()
        }
        self.log_words = _longest(self.digest_forms.values())
        """Where the numbers of a message begin: a digest waits for the end of the frame, and egress may log before."""
        self.words = self.log_words + _longest(self.log_forms)


def _longest(rows: Iterable[Sequence[Form]]) -> int:
    return max((sum(form.words for form in row) for row in rows), default=0)


def _form(bits: int, signed: bool) -> Form:
    return Form(size_for(bits) // 64, signed)


def taken(words: Sequence[int], forms: Sequence[Form]) -> tuple[int, ...]:
    """The numbers that stand in words, in these forms."""
    found, position = [], 0
    for form in forms:
        number = 0
        for shift, word in enumerate(words[position : position + form.words]):
            number |= (word & (1 << 64) - 1) << 64 * shift
        size = 64 * form.words
        found.append(number - (1 << size) if form.signed and number >> (size - 1) else number)
        position += form.words
    return tuple(found)

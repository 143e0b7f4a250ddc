"""Layout of the values that compiled code passes to Python: those of digests, log messages and traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from p4reduce_switch.program.errors import ExecutionError
from p4reduce_switch.program.ir.features import walk
from p4reduce_switch.program.ir.program import Program
from p4reduce_switch.program.ir.statements import Log
from p4reduce_switch.program.layout import Layout
from p4reduce_switch.program.llvm.numbers import size_for
from p4reduce_switch.program.steps import Step


class Failure(IntEnum):
    """Undefined behaviour of P4."""

    INDEX = 1
    DIVISION = 2
    ASSERT = 3
    ENDLESS_PARSER = 4
    ENDLESS_ACTION = 5
    CALL = 6
    """Python raised an error while machine code called it."""


def error_of(failure: Failure, value: int, limit: int) -> ExecutionError:
    """Return the ExecutionError of a failure."""
    match failure:
        case Failure.INDEX:
            return ExecutionError(f"header stack index {value} is outside 0..{limit}")
        case Failure.DIVISION:
            return ExecutionError(f"division by {value}: P4 defines it for positive divisors only")
        case Failure.ASSERT:
            return ExecutionError("an assert or assume of the program failed")
        case Failure.ENDLESS_PARSER:
            return ExecutionError("the parser does not end")
    return ExecutionError("a loop in an action does not end")


@dataclass(frozen=True, slots=True)
class WordFormat:
    """The number of 64-bit words of a value, and whether it is signed."""

    words: int
    signed: bool


@dataclass(frozen=True, slots=True)
class Point:
    """A place in traced code that reports: what happens there, to which node of the IR, and its values' formats."""

    what: Step
    subject: Any
    formats: tuple[WordFormat, ...]


class HostAbi:
    """The formats of all log messages and digests; `number_of` numbers the messages for compiled code."""

    def __init__(self, program: Program, layout: Layout, *, traced: bool = False) -> None:
        """`traced`: whether the code reports each of its steps."""
        self.points: list[Point] | None = [] if traced else None
        """The places that report, by number, once the code is emitted; None: none does."""
        self.logs = [node for node in walk(program) if isinstance(node, Log)]
        self.number_of = {node: number for number, node in enumerate(self.logs)}
        self.log_formats = [[_word_format(value.bits, value.signed) for value in node.values] for node in self.logs]
        self.digest_formats = {
            id_: [
                _word_format(layout.kinds[slot.number].bits, layout.kinds[slot.number].signed) for slot in digest.fields
            ]
            for id_, digest in program.digests.items()
        }
        self.log_words = _longest(self.digest_formats.values())
        """The first word of a log message's values; the words before it are those of digests."""

    @property
    def words(self) -> int:
        """Words of all values together."""
        points = [point.formats for point in self.points or ()]
        return self.log_words + _longest([*self.log_formats, *points])


def _longest(rows: Iterable[Sequence[WordFormat]]) -> int:
    return max((sum(item.words for item in row) for row in rows), default=0)


def _word_format(bits: int, signed: bool) -> WordFormat:
    return WordFormat(size_for(bits) // 64, signed)


def unpack_values(words: Sequence[int], formats: Sequence[WordFormat]) -> tuple[int, ...]:
    """Return the values in `words`, in these formats."""
    found, position = [], 0
    for format_ in formats:
        number = 0
        for shift, word in enumerate(words[position : position + format_.words]):
            number |= (word & (1 << 64) - 1) << 64 * shift
        size = 64 * format_.words
        found.append(number - (1 << size) if format_.signed and number >> (size - 1) else number)
        position += format_.words
    return tuple(found)

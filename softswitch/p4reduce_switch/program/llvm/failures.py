"""Causes of failed frames: numbers in compiled code, ExecutionErrors in Python."""

from __future__ import annotations

from enum import IntEnum

from p4reduce_switch.program.errors import ExecutionError


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

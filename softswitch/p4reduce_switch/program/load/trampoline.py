"""Recursion without Python's stack: a recursive function is a generator that yields its recursive calls.

def depth(place):
    inner = place.get("right")
    return 0 if inner is None else 1 + (yield depth(inner))

run(depth(root))
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.load.limits import MAX_NESTING

CALLS_OF_A_LEVEL = 3

T = TypeVar("T")
Task = Generator["Task[Any]", Any, T]


def run(task: Task[T]) -> T:
    """Run the generator, and return its result."""
    stack: list[Task[Any]] = [task]
    value: Any = None
    while stack:
        try:
            inner = stack[-1].send(value)
        except StopIteration as stop:
            stack.pop()
            value = stop.value
        else:
            if len(stack) >= CALLS_OF_A_LEVEL * MAX_NESTING:
                raise UnsupportedConstructError(f"expressions nested deeper than {MAX_NESTING} levels")
            stack.append(inner)
            value = None
    result: T = value
    return result

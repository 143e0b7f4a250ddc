"""A small writer of Python source: indentation, unique names, and the objects the source refers to.

What is written holds numbers, operators and names made here; strings of the program are bound as objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from p4reduce_switch.program.errors import UnsupportedConstruct

MAX_TEXT = 4 << 20
"""Characters of a module: Python takes seconds to compile more."""
TITLE = "<P4 program>"
WIDEST_CHAIN = 16
"""Branches of one if statement: to Python each `elif` is a level of nesting."""


class Source:
    """Collects the functions of one generated module and the values its global names stand for."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {}
        self.depth = 0
        self._lines: list[str] = []
        self._later: list[Callable[[], None]] = []
        self._counter = 0
        self._length = 0

    def add(self, line: str) -> None:
        """Append one line at the current indentation."""
        self._length += len(line) + self.depth + 1
        if self._length > MAX_TEXT:
            raise UnsupportedConstruct(f"a program that makes more than {MAX_TEXT} characters of Python")
        self._lines.append(" " * self.depth + line)

    def fresh(self, prefix: str) -> str:
        """A name not used before."""
        self._counter += 1
        return f"{prefix}_{self._counter}"

    def bind(self, prefix: str, value: Any) -> str:
        """Make `value` a global of the generated module; returns its name there."""
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """An indented block; gets a `pass` when nothing is written in it."""
        self.add(header)
        self.depth += 1
        start = len(self._lines)
        yield
        if len(self._lines) == start:
            self.add("pass")
        self.depth -= 1

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """The `else` of the block before; left out when nothing is written in it."""
        start = len(self._lines)
        self.add("else:")
        self.depth += 1
        yield
        self.depth -= 1
        if len(self._lines) == start + 1:
            self._lines.pop()

    def choose_among(self, name: str, numbers: Sequence[int], write: Callable[[int], None]) -> None:
        """Branch on the value of a variable: `write(number)` writes the branch of each number; they rise."""
        if len(numbers) > WIDEST_CHAIN:
            middle = len(numbers) // 2
            with self.block(f"if {name} < {numbers[middle]}:"):
                self.choose_among(name, numbers[:middle], write)
            with self.block("else:"):
                self.choose_among(name, numbers[middle:], write)
            return
        word = "if"
        for number in numbers:
            with self.block(f"{word} {name} == {number}:"):
                write(number)
            word = "elif"

    def later(self, write: Callable[[], None]) -> None:
        """Write something else, such as a function of its own, when all that has been begun is written."""
        self._later.append(write)

    def flush(self) -> None:
        """Write everything that was put off."""
        while self._later:
            self._later.pop()()

    def execute(self) -> tuple[dict[str, Any], str]:
        """Compile the module; returns its namespace and its source."""
        self.flush()
        text = "\n".join(self._lines) + "\n"
        namespace = dict(self.names)
        exec(compile(text, TITLE, "exec"), namespace)
        return namespace, text

"""A small writer of Python source: indentation, unique names, and the objects the source refers to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .errors import InvalidProgram


class Source:
    """Collects the lines of one generated module and the values its global names stand for."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.depth = 0
        self._counter = 0

    def add(self, line: str) -> None:
        """Append one line at the current indentation; InvalidProgram when it is more than one."""
        if len(line.splitlines()) != 1:
            raise InvalidProgram(f"a name or number of the program holds a line break: {line!r}")
        self.lines.append(" " * self.depth + line)

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
        start = len(self.lines)
        yield
        if len(self.lines) == start:
            self.add("pass")
        self.depth -= 1

    @contextmanager
    def detached(self) -> Iterator[list[str]]:
        """Write somewhere else at indentation 0 (a function of its own), then come back."""
        saved_lines, saved_depth = self.lines, self.depth
        self.lines, self.depth = [], 0
        try:
            yield self.lines
        finally:
            self.lines, self.depth = saved_lines, saved_depth

    def text(self) -> str:
        """The module's source."""
        return "\n".join(self.lines) + "\n"

    def execute(self, functions: list[list[str]], title: str) -> dict[str, Any]:
        """Compile the module (detached functions first) and return its namespace."""
        text = "\n".join("\n".join(lines) for lines in [*functions, self.lines]) + "\n"
        namespace = dict(self.names)
        exec(compile(text, title, "exec"), namespace)
        namespace["__source__"] = text
        return namespace

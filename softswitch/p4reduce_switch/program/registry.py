"""The executors there are, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from p4reduce_switch.program.errors import UnknownExecutor
from p4reduce_switch.program.executor import Executor
from p4reduce_switch.program.python import Program

DEFAULT_EXECUTOR = "python"

executors: dict[str, Callable[[bytes | str | dict[str, Any]], Executor]] = {"python": Program.load}
"""Each takes a BMv2 JSON and raises what `load_program` does."""


def check_executor(name: str) -> None:
    """UnknownExecutor, with the names there are, unless this is one of them."""
    if name not in executors:
        raise UnknownExecutor(f"there is no executor {name!r}; there is: {', '.join(sorted(executors))}")


def load(config: bytes | str | dict[str, Any], executor: str = DEFAULT_EXECUTOR) -> Executor:
    """Load a BMv2 JSON (the output of p4c-bm2-ss) into the executor of that name."""
    check_executor(executor)
    return executors[executor](config)

"""The executors there are, by name."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from typing import Any

from p4reduce_contracts.logs import event
from p4reduce_switch.program.errors import UnknownExecutor
from p4reduce_switch.program.executor import Executor
from p4reduce_switch.program.python import Program

_log = logging.getLogger(__name__)

Config = bytes | str | dict[str, Any]
AUTO = "auto"
"""The fastest executor for a program that there is on this machine."""
DEFAULT_EXECUTOR = AUTO


def _compiled(config: Config, *, stages: bool = True) -> Executor:
    """The program as machine code; in the Python executor, and that is said, when it cannot be compiled.

    Without `stages` only a program that becomes one native function: stages under Python's traffic manager are slower
    than Python where they do little.
    """
    from p4reduce_switch.program.llvm.errors import NotCompilable
    from p4reduce_switch.program.llvm.program import CompiledProgram

    try:
        return CompiledProgram.load(config, stages=stages)
    except NotCompilable as error:
        event(_log, logging.WARNING, "program not compiled", executor="python", cause=str(error))
        program = Program.load(config)
        program.description = f"python (not compiled: {error})"
        return program


executors: dict[str, Callable[[Config], Executor]] = {"python": Program.load}
"""Each takes a BMv2 JSON and raises what `load_program` does."""
if importlib.util.find_spec("llvmlite") is not None:
    executors["llvm"] = _compiled


def check_executor(name: str) -> None:
    """UnknownExecutor, with the names there are, unless this is one of them."""
    if name != AUTO and name not in executors:
        raise UnknownExecutor(f"there is no executor {name!r}; there is: {', '.join(sorted([AUTO, *executors]))}")


def load(config: Config, executor: str = DEFAULT_EXECUTOR) -> Executor:
    """Load a BMv2 JSON (the output of p4c-bm2-ss) into the executor of that name."""
    check_executor(executor)
    if executor == AUTO:
        return _compiled(config, stages=False) if "llvm" in executors else executors["python"](config)
    return executors[executor](config)

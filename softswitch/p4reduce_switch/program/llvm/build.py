"""Compiles a program to an object file, with a cache.

The cache key is a digest of all inputs: the pipeline, LLVM, the processor, and this compiler's source.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
from llvmlite import binding
from msgspec.structs import replace

from p4reduce_runtime.cache import cache_folder, prune, read, write
from p4reduce_runtime.logs import event
from p4reduce_switch.program.errors import UnsupportedConstructError
from p4reduce_switch.program.ir.features import features
from p4reduce_switch.program.ir.program import Program, TargetOptions
from p4reduce_switch.program.layout import Layout
from p4reduce_switch.program.llvm import target
from p4reduce_switch.program.llvm.batch_code import BatchWriter
from p4reduce_switch.program.llvm.emitter import Module
from p4reduce_switch.program.llvm.host_abi import HostAbi
from p4reduce_switch.program.llvm.stages_code import StagesWriter
from p4reduce_switch.program.memory import StateOffsets

_log = logging.getLogger(__name__)


def object_file(
    config: bytes | str | dict[str, Any], program: Program, layout: Layout, offsets: StateOffsets, host_abi: HostAbi
) -> bytes:
    """Return the object file of a program, from the cache or compiled now.

    Traced code (`host_abi.points`) is emitted in any case: the points are not in the cache.
    UnsupportedConstructError names a construct that cannot be compiled.
    """
    module = None if host_abi.points is None else emit(program, layout, offsets, host_abi)
    options = replace(program.target, threads=min(2, program.target.threads))  # the code is that of any number above 1
    folder, key = cache_folder(), _key(config, options, traced=module is not None)
    path = None if folder is None or key is None else folder / f"executor-{key}.o"
    if path is not None:
        found = read(path)
        if found is not None:
            return found
    made = _compiled(program, layout, offsets, host_abi, module)
    if path is not None:
        write(path, made)
        prune(path.parent)
    return made


def _compiled(
    program: Program, layout: Layout, offsets: StateOffsets, host_abi: HostAbi, module: Module | None
) -> bytes:
    """Compile a program, or what is emitted of it; log its size before LLVM starts, and the time afterwards."""
    begun = time.monotonic()
    module = module or emit(program, layout, offsets, host_abi)
    event(_log, logging.INFO, "compiling program", instructions=module.instructions)
    made = target.object_of(str(module.ir))
    took_s = round(time.monotonic() - begun, 2)
    event(_log, logging.INFO, "program compiled", instructions=module.instructions, seconds=took_s)
    return made


def emit(program: Program, layout: Layout, offsets: StateOffsets, host_abi: HostAbi) -> Module:
    """Emit a program as LLVM IR; UnsupportedConstructError when it cannot be compiled."""
    module = Module()
    writer = StagesWriter if features(program).in_stages else BatchWriter
    try:
        writer(module, program, layout, offsets, host_abi)
    except RecursionError as error:
        raise UnsupportedConstructError("a program nested deeper than Python takes") from error
    return module


def _key(config: bytes | str | dict[str, Any], options: TargetOptions, *, traced: bool) -> str | None:
    """Return the cache key; None for a program nested too deeply for JSON, or when the sources cannot be read."""
    try:
        text = json.dumps(config) if isinstance(config, dict) else config
        hashed = hashlib.sha256(_sources())
    except (RecursionError, OSError):
        return None
    hashed.update(f"{llvmlite.__version__} {binding.llvm_version_info} {target.cpu()} {options} {traced}\n".encode())
    hashed.update(text.encode() if isinstance(text, str) else text)
    return hashed.hexdigest()


@cache
def _sources() -> bytes:
    """Return a digest of the source of `p4reduce_switch.program`."""
    hashed = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        hashed.update(path.read_bytes())
    return hashed.digest()

"""Linux's futex, called from compiled code: a thread sleeps until a 32-bit word that processes share has changed."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import Any, Final

import numba
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

_NUMBER: Final = {"x86_64": 202, "aarch64": 98}.get(platform.machine(), 0)
"""The system call's number."""
_WAIT, _WAKE, _ALL = 0, 1, 0x7FFFFFFF
_I64: Final = ir.IntType(64)
_types: Any = numba.types


def _call(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    """Call syscall(2), which takes a variable number of arguments."""
    kind = ir.FunctionType(_I64, [_I64], var_arg=True)
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, "syscall"), [_I64(_NUMBER), *arguments])


def _wait(_typing: object, address: int, expected: int, timeout_us: int) -> object:
    def generate(_: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> ir.Value:
        timespec: ir.Value = cgutils.alloca_once(builder, _I64, size=2)
        builder.store(builder.sdiv(arguments[2], _I64(1_000_000)), timespec)
        nanoseconds = builder.mul(builder.srem(arguments[2], _I64(1_000_000)), _I64(1000))
        builder.store(nanoseconds, builder.gep(timespec, [_I64(1)]))
        until = builder.ptrtoint(timespec, _I64)
        return _call(builder, [arguments[0], _I64(_WAIT), arguments[1], until, _I64(0), _I64(0)])

    return _types.int64(_types.int64, _types.int64, _types.int64), generate


def _wake(_typing: object, address: int) -> object:
    def generate(_: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> ir.Value:
        return _call(builder, [arguments[0], _I64(_WAKE), _I64(_ALL), _I64(0), _I64(0), _I64(0)])

    return _types.int64(_types.int64), generate


sleep_while: Callable[..., int] = intrinsic(_wait)
"""Sleep while the word at an address has a value, until it is woken, for so many microseconds, or until a signal comes.
It returns 0 once woken, else -1: the caller looks at the word again."""
wake_all: Callable[..., int] = intrinsic(_wake)
"""Wake all threads that sleep on the word at an address."""

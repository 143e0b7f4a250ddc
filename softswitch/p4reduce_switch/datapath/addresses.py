"""Memory access by address, atomics, and Internet checksums (RFC 1071). For kernels only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable
from numpy.typing import NDArray

Octets: TypeAlias = NDArray[np.uint8]
_types: Any = numba.types
_WORD = ir.IntType(64)
_VOID_VALUE = ir.Constant(ir.IntType(8).as_pointer(), None)
"""What numba expects as the result of a function without one."""


_Typed: TypeAlias = tuple[object, Callable[..., object]]
"""The signature of an intrinsic, and what emits its code."""


def _intrinsic(function: Callable[..., _Typed]) -> Callable[..., int]:
    declared: Callable[..., int] = intrinsic(function)
    return declared


@_intrinsic
def call_function(_typing: object, function: int, argument: int) -> _Typed:
    """Call the C function int64_t f(void *) at an address."""

    def generate(_context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> object:
        pointer = builder.inttoptr(arguments[0], ir.FunctionType(_WORD, [_WORD]).as_pointer())
        return builder.call(pointer, [arguments[1]])

    return _types.int64(_types.int64, _types.int64), generate


@_intrinsic
def copy_bytes(_typing: object, to: int, start: int, count: int) -> _Typed:
    """Copy `count` bytes to an address from another one."""

    def generate(_context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> object:
        octet = ir.IntType(8).as_pointer()
        target, source = (builder.inttoptr(address, octet) for address in arguments[:2])
        cgutils.raw_memcpy(builder, target, source, arguments[2], 1)
        return _VOID_VALUE

    return _types.void(_types.int64, _types.int64, _types.int64), generate


@_intrinsic
def load_uint32(_typing: object, address: int, index: int) -> _Typed:
    """Read element `index` of an array of 32-bit numbers; LLVM can vectorise over it."""

    def generate(_context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> object:
        first = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        return builder.zext(builder.load(builder.gep(first, [arguments[1]]), align=1), _WORD)

    return _types.int64(_types.int64, _types.int64), generate


@_intrinsic
def load_byte(_typing: object, address: int) -> _Typed:
    """Read the byte at an address."""

    def generate(_context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> object:
        return builder.zext(builder.load(builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())), _WORD)

    return _types.int64(_types.int64), generate


@_intrinsic
def load_word(_typing: object, address: int) -> _Typed:
    """Read the 64 bits at an address."""

    def generate(_context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> object:
        return builder.load(builder.inttoptr(arguments[0], _WORD.as_pointer()), align=1)

    return _types.int64(_types.int64), generate


@_intrinsic
def store_word(_typing: object, address: int, word: int) -> _Typed:
    """Write the 64 bits at an address."""

    def generate(_context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> object:
        builder.store(arguments[1], builder.inttoptr(arguments[0], _WORD.as_pointer()), align=1)
        return _VOID_VALUE

    return _types.void(_types.int64, _types.int64), generate


@_intrinsic
def exchange_word(_typing: object, address: int, word: int) -> _Typed:
    """Exchange the 64 bits at an address (sequentially consistent); return the old ones."""

    def generate(_context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> object:
        pointer = builder.inttoptr(arguments[0], _WORD.as_pointer())
        return builder.atomic_rmw("xchg", pointer, arguments[1], "seq_cst")

    return _types.int64(_types.int64, _types.int64), generate


@_intrinsic
def load_shared_word(_typing: object, address: int) -> _Typed:
    """Read the 64 bits at an address that another thread may write (sequentially consistent)."""

    def generate(_context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> object:
        return builder.load_atomic(builder.inttoptr(arguments[0], _WORD.as_pointer()), "seq_cst", 8)

    return _types.int64(_types.int64), generate


@register_jitable
def ones_sum(address: int, length: int) -> int:
    """Return a number that is, modulo 2**16 - 1, the one's complement sum of some bytes as little-endian numbers.

    The sum of them as big-endian numbers has its two bytes exchanged: RFC 1071.
    """
    total = 0
    for word in range(length // 4):
        total += load_uint32(address, word)
    for place in range(length // 4 * 4, length):
        total += load_byte(address + place) << 8 * (place & 1)
    return total


@register_jitable
def internet_checksum(total: int) -> int:
    """Return the Internet checksum of bytes that are not all zero, from their sum modulo 2**16 - 1.

    It has the byte order of the sum.
    """
    return (0xFFFF - total % 0xFFFF) % 0xFFFF


@register_jitable
def udp_checksum(total: int) -> int:
    """Return the UDP checksum: 0xFFFF in place of 0, which stands for none (RFC 768)."""
    return 0xFFFF - total % 0xFFFF


@register_jitable
def exchange_bytes(number: int) -> int:
    """Exchange the two bytes of a 16-bit number."""
    return number >> 8 | (number & 0xFF) << 8


@register_jitable
def put_uint16(octets: Octets, at: int, number: int) -> None:
    """Write a 16-bit number in network byte order."""
    octets[at], octets[at + 1] = number >> 8, number & 0xFF


@register_jitable
def put_checksum(octets: Octets, at: int, number: int) -> None:
    """Write a checksum made of an `ones_sum`, which is little-endian."""
    octets[at], octets[at + 1] = number & 0xFF, number >> 8

"""Memory access by address, atomics, and Internet checksums (RFC 1071). For kernels only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.int64]
Octets: TypeAlias = NDArray[np.uint8]
_types: Any = numba.types
_memcpy: Any = cgutils.raw_memcpy
_WORD = ir.IntType(64)


def _intrinsic(function: Any) -> Any:
    return intrinsic(function)


@register_jitable
def address_of(array: NDArray[np.generic]) -> Any:
    """Return the address of an array's data."""
    return np.int64(array.ctypes.data)


@_intrinsic
def call_function(_typing: object, function: int, argument: int) -> Any:
    """Call the C function int64_t f(void *) at an address."""

    def generate(_context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> Any:
        pointer = builder.inttoptr(arguments[0], ir.FunctionType(_WORD, [_WORD]).as_pointer())
        return builder.call(pointer, [arguments[1]])

    return _types.int64(_types.int64, _types.int64), generate


@_intrinsic
def copy_bytes(_typing: object, to: int, start: int, count: int) -> Any:
    """Copy `count` bytes to an address from another one."""

    def generate(context: Any, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> Any:
        octet = ir.IntType(8).as_pointer()
        target, source = (builder.inttoptr(address, octet) for address in arguments[:2])
        _memcpy(builder, target, source, arguments[2], 1)
        return context.get_dummy_value()

    return _types.void(_types.int64, _types.int64, _types.int64), generate


@_intrinsic
def load_uint32(_typing: object, address: int, index: int) -> Any:
    """Read element `index` of an array of 32-bit numbers; LLVM can vectorise over it."""

    def generate(_context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> Any:
        first = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        return builder.zext(builder.load(builder.gep(first, [arguments[1]]), align=1), _WORD)

    return _types.int64(_types.int64, _types.int64), generate


@_intrinsic
def load_byte(_typing: object, address: int) -> Any:
    """Read the byte at an address."""

    def generate(_context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> Any:
        return builder.zext(builder.load(builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())), _WORD)

    return _types.int64(_types.int64), generate


@_intrinsic
def load_word(_typing: object, address: int) -> Any:
    """Read the 64 bits at an address."""

    def generate(_context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> Any:
        return builder.load(builder.inttoptr(arguments[0], _WORD.as_pointer()), align=1)

    return _types.int64(_types.int64), generate


@_intrinsic
def store_word(_typing: object, address: int, word: int) -> Any:
    """Write the 64 bits at an address."""

    def generate(context: Any, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> Any:
        builder.store(arguments[1], builder.inttoptr(arguments[0], _WORD.as_pointer()), align=1)
        return context.get_dummy_value()

    return _types.void(_types.int64, _types.int64), generate


@_intrinsic
def exchange_word(_typing: object, address: int, word: int) -> Any:
    """Exchange the 64 bits at an address (sequentially consistent); return the old ones."""

    def generate(_context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> Any:
        pointer = builder.inttoptr(arguments[0], _WORD.as_pointer())
        return builder.atomic_rmw("xchg", pointer, arguments[1], "seq_cst")

    return _types.int64(_types.int64, _types.int64), generate


@_intrinsic
def load_shared_word(_typing: object, address: int) -> Any:
    """Read the 64 bits at an address that another thread may write (sequentially consistent)."""

    def generate(_context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> Any:
        return builder.load_atomic(builder.inttoptr(arguments[0], _WORD.as_pointer()), "seq_cst", 8)

    return _types.int64(_types.int64), generate


@register_jitable
def ones_sum(address: int, length: int) -> Any:
    """Return a number that is, modulo 2**16 - 1, the one's complement sum of some bytes as little-endian numbers.

    The sum of them as big-endian numbers has its two bytes exchanged: RFC 1071.
    """
    total: Any = 0
    for word in range(length // 4):
        total += load_uint32(address, word)
    for place in range(length // 4 * 4, length):
        total += load_byte(address + place) << 8 * (place & 1)
    return total


@register_jitable
def internet_checksum(total: int) -> Any:
    """Return the Internet checksum of bytes that are not all zero, from their sum modulo 2**16 - 1.

    It has the byte order of the sum.
    """
    return (0xFFFF - total % 0xFFFF) % 0xFFFF


@register_jitable
def udp_checksum(total: int) -> Any:
    """Return the UDP checksum: 0xFFFF in place of 0, which stands for none (RFC 768)."""
    return 0xFFFF - total % 0xFFFF

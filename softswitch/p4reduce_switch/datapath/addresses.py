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
"""The value that numba expects as the result of a function without one."""


_Typed: TypeAlias = tuple[object, Callable[..., object]]
"""The signature of an intrinsic, and what emits its code."""


def _intrinsic(function: Callable[..., _Typed]) -> Callable[..., int]:
    declared: Callable[..., int] = intrinsic(function)
    return declared


def _typed(count: int, emit: Callable[..., object], result: object = _types.int64) -> _Typed:
    """Return what an intrinsic of `count` words does: `emit(builder, *words)` is its result, without one None."""

    def generate(_context: object, builder: ir.IRBuilder, _signature: object, arguments: Sequence[ir.Value]) -> object:
        found = emit(builder, *arguments)
        return _VOID_VALUE if found is None else found

    return result(*[_types.int64] * count), generate  # type: ignore[operator]


def _pointer(builder: ir.IRBuilder, address: ir.Value, bits: int = 64) -> ir.Value:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


@_intrinsic
def call_function(_typing: object, function: int, argument: int) -> _Typed:
    """Call the C function int64_t f(void *) at an address."""
    kind = ir.FunctionType(_WORD, [_WORD]).as_pointer()
    return _typed(2, lambda builder, function, argument: builder.call(builder.inttoptr(function, kind), [argument]))


@_intrinsic
def copy_bytes(_typing: object, to: int, start: int, count: int) -> _Typed:
    """Copy `count` bytes to an address from another one."""

    def emit(builder: ir.IRBuilder, to: ir.Value, start: ir.Value, count: ir.Value) -> None:
        cgutils.raw_memcpy(builder, _pointer(builder, to, 8), _pointer(builder, start, 8), count, 1)

    return _typed(3, emit, _types.void)


@_intrinsic
def load_uint32(_typing: object, address: int, index: int) -> _Typed:
    """Read element `index` of an array of 32-bit numbers; LLVM can vectorise over it."""

    def emit(builder: ir.IRBuilder, address: ir.Value, index: ir.Value) -> ir.Value:
        element = builder.gep(_pointer(builder, address, 32), [index])
        return builder.zext(builder.load(element, align=1), _WORD)

    return _typed(2, emit)


@_intrinsic
def load_byte(_typing: object, address: int) -> _Typed:
    """Read the byte at an address."""
    return _typed(1, lambda builder, address: builder.zext(builder.load(_pointer(builder, address, 8)), _WORD))


@_intrinsic
def load_word(_typing: object, address: int) -> _Typed:
    """Read the 64 bits at an address."""
    return _typed(1, lambda builder, address: builder.load(_pointer(builder, address), align=1))


@_intrinsic
def exchange_word(_typing: object, address: int, word: int) -> _Typed:
    """Exchange the 64 bits at an address (sequentially consistent); return the old ones."""
    return _typed(
        2, lambda builder, address, word: builder.atomic_rmw("xchg", _pointer(builder, address), word, "seq_cst")
    )


@_intrinsic
def load_shared_word(_typing: object, address: int) -> _Typed:
    """Read the 64 bits at an address that another thread may write (sequentially consistent)."""
    return _typed(1, lambda builder, address: builder.load_atomic(_pointer(builder, address), "seq_cst", 8))


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
